// One worker's attachment: the state of its Attach stream and of the session
// stream that we dial. Part of registry_service.

#ifndef COORDINATOR_API_ATTACHMENT_H_
#define COORDINATOR_API_ATTACHMENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/message_stream.h"
#include "coordinator/api/registry_service.h"
#include "coordinator/api/stream_link.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/dispatcher.h"
#include "coordinator/dispatch/random_number.h"
#include "coordinator/fleet/signs_of_life.h"
#include "proto/admin.pb.h"
#include "proto/worker.pb.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

// Thread-safe. Kept alive by its streams' callbacks and, until both have ended,
// by the service. Calls the dispatcher and the service without its lock:
// neither delays what only looks at it.
class RegistryService::Attachment
    : public std::enable_shared_from_this<RegistryService::Attachment> {
 public:
  using Stream = rpc::ServerMessageStream<v1::WorkerEvent, v1::WorkerCommand>;

  // What the dispatcher says of its workers, by their ids.
  using Statuses = std::map<uint64_t, const WorkerStatus*>;

  // Later attachments have larger serial numbers.
  Attachment(RegistryService* service, uint64_t serial)
      : service_(service),
        dispatcher_(service->dispatcher_),
        tokenizer_(service->tokenizer_),
        now_ns_(service->options_.now_ns),
        serial_(serial),
        began_ns_(now_ns_()) {}

  void SetStream(std::shared_ptr<Stream> stream);

  // The Attach stream's events.
  void OnMessage(const v1::WorkerEvent& event);
  void OnStreamDone();

  // Ends it from our side.
  void Refuse(const absl::Status& status);
  void EndIfOlder(const std::string& address, uint64_t serial);
  void EndIfSilent(int64_t now_ns);
  // Tells the worker to drain; false if it is not the one at `address`.
  bool DrainIfAt(const std::string& address);

  // False before Hello and when the worker has left. A worker that is not among
  // `statuses` takes no sessions yet.
  bool Describe(const Statuses& statuses, v1::WorkerInfo* info);

 private:
  enum class State { kHello, kProof, kDialling, kJoining, kAttached, kGone };

  void OnHello(const v1::Hello& hello);
  // Opens the session stream.
  template <typename Link>
  std::shared_ptr<Link> Dial() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnProof(const v1::VocabularyProof& proof);
  void OnHeartbeat(const v1::Heartbeat& heartbeat);
  // The session stream's events.
  void OnReady(uint64_t attachment);
  template <typename Events>
  void OnEvents(Events events);
  void OnLost(const absl::Status& status);
  // The worker comes into service.
  void Join();
  // Takes the worker out of service; the streams end on their own.
  void Leave();
  // Ends both streams, and the service.
  void End(const absl::Status& status);
  // Nothing more is said to the worker.
  std::shared_ptr<Stream> TakeStream();
  // What it has yet to do before it is in service.
  std::string Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // One of the two streams has had its last callback.
  void OnStreamEnded();

  RegistryService* const service_;
  Dispatcher* const dispatcher_;
  const tokenizer::Tokenizer* const tokenizer_;
  const Clock now_ns_;
  const uint64_t serial_;
  const int64_t began_ns_;
  // What only the process at the other end of the Attach stream is told.
  const uint64_t secret_ = RandomNumber();

  absl::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kHello;
  int open_streams_ ABSL_GUARDED_BY(mu_) = 1;
  // Null once the worker has been refused: nothing it says counts any more.
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mu_);
  // The session stream, once it is dialled, and how the dispatcher gets it.
  std::shared_ptr<WorkerStream> session_ ABSL_GUARDED_BY(mu_);
  std::function<absl::StatusOr<uint64_t>(WorkerInfo)> join_
      ABSL_GUARDED_BY(mu_);
  v1::Hello hello_ ABSL_GUARDED_BY(mu_);
  WorkerInfo info_ ABSL_GUARDED_BY(mu_);
  int common_vocabulary_ ABSL_GUARDED_BY(mu_) = 0;
  v1::Heartbeat heartbeat_ ABSL_GUARDED_BY(mu_);  // the latest
  SignsOfLife life_ ABSL_GUARDED_BY(mu_);
  bool told_to_drain_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t worker_id_ ABSL_GUARDED_BY(mu_) = 0;  // 0 until in service
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_ATTACHMENT_H_
