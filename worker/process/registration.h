// Keeps this worker registered: dials the coordinator's Registry, says Hello,
// proves its vocabulary and sends heartbeats. It starts over whenever the
// stream ends, as long as it takes. Its last heartbeat goes out as it leaves.
//
// Owns one thread, on which all callbacks run.

#ifndef WORKER_PROCESS_REGISTRATION_H_
#define WORKER_PROCESS_REGISTRATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/message_stream.h"
#include "common/rpc/security.h"
#include "proto/worker.pb.h"

namespace nacre::worker {

class Registration {
 public:
  struct Options {
    std::string coordinator;  // host:port
    rpc::ChannelSecurity security;
    v1::Hello hello;
    // The SHA-256 of the pieces of ids [0, common_size).
    std::function<std::string(int common_size)> vocabulary_hash;
    // `coordinator` is the number that names its process
    // (VocabularyRequest.coordinator).
    std::function<v1::Heartbeat(uint64_t coordinator)> heartbeat;
    // How many KeptSessions of the coordinator have come here, ever: one
    // follows each heartbeat.
    std::function<uint64_t(uint64_t coordinator)> kept_lists;
    // What the coordinator expects to hear from the process at hello.address,
    // before it dials there.
    std::function<void(uint64_t coordinator, uint64_t attachment)>
        on_attachment;
    // A coordinator that knew this worker is lost; returns when nothing is left
    // of what it began here. The next attempt waits: a worker that attaches is
    // taken for empty.
    std::function<void(uint64_t coordinator)> on_lost;
    // The coordinator wants this worker to finish and exit.
    std::function<void()> on_drain;
    // FAILED_PRECONDITION or INVALID_ARGUMENT: trying again soon would not
    // help. False: nothing follows. True: it tries again as after a loss, since
    // other coordinators have taken this worker.
    std::function<bool(const absl::Status&)> on_refused;
    // Before the wait for the next attempt: how long it is. May be empty.
    std::function<void(absl::Duration)> on_retry;

    absl::Duration heartbeat_period = absl::Seconds(1);
    // Between attempts: jittered, doubled up to the maximum, reset by Accepted.
    absl::Duration min_backoff = absl::Milliseconds(100);
    absl::Duration max_backoff = absl::Seconds(2);
    // A coordinator that has not accepted this worker by then is logged, once
    // until one does.
    absl::Duration accept_patience = absl::Seconds(5);
    // How long the destructor waits for the coordinator to hear the last
    // heartbeat.
    absl::Duration leave_patience = absl::Seconds(1);
  };

  explicit Registration(Options options);
  // Leaves the coordinator and joins the thread.
  ~Registration();
  // Begins to leave: the destructor need not wait as long. Idempotent.
  void Leave();

  // Lets the next heartbeat go out at once.
  void SendHeartbeat();

  // Whether all that the coordinator may have begun here has come: KeptSessions
  // that answer a heartbeat that said `draining`, or there is no coordinator
  // that knows this worker.
  bool IsDrainKnown() const;

  // Whether the coordinator knows this worker: it may have sessions here.
  bool is_known() const;
  // Whether it has accepted this worker, and the number that names it then; 0:
  // it has not.
  bool registered() const;
  uint64_t coordinator() const;

 private:
  using Stream = rpc::ClientMessageStream<v1::WorkerEvent, v1::WorkerCommand>;
  // Outlives `this` in the callbacks of a stream that ends late.
  struct Mailbox;
  struct Turn;

  void Run();
  // How far one stream got.
  struct Progress {
    bool known = false;  // the coordinator has answered, and may dial
    bool accepted = false;
    uint64_t coordinator = 0;
    uint64_t heartbeats = 0;
    uint64_t kept_before = 0;  // kept_lists of earlier streams
  };

  // One stream, to its end.
  absl::Status Attach(Progress* progress);
  // Whose messages, and whose end, get into the mailbox, which it empties.
  std::shared_ptr<Stream> NewStream();
  // Waits for what comes, at the latest until `next`.
  Turn AwaitTurn(absl::Time next, bool leaving);
  void OnCommand(const v1::WorkerCommand& command, Stream* stream,
                 Progress* progress);
  void Beat(Stream* stream, Progress* progress);
  void LogWaiting();

  const Options options_;
  bool logged_waiting_ = false;  // since the last Accepted; the thread's own
  const std::shared_ptr<Mailbox> mailbox_;
  std::thread thread_;
};

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_REGISTRATION_H_
