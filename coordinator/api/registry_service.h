// Registry.Attach: workers dial in, prove their vocabulary, and are dialled
// back (proto/worker.proto). An attachment lives as long as both streams do.

#ifndef COORDINATOR_API_REGISTRY_SERVICE_H_
#define COORDINATOR_API_REGISTRY_SERVICE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/security.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/dispatcher.h"
#include "coordinator/dispatch/random_number.h"
#include "proto/admin.pb.h"
#include "proto/worker.grpc.pb.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

// Thread-safe. The dispatcher and the tokenizer must outlive it; the server
// that runs it must have been shut down before it goes. The destructor waits
// for the session streams that it has dialled: none calls the dispatcher after.
class RegistryService final : public v1::Registry::CallbackService {
 public:
  struct Options {
    rpc::ChannelSecurity security;  // of the channels to workers
    // What clients call the model; empty: as its targets do, by their folder.
    std::string served_model_name;
    // A worker in service counts as lost when one of its streams is silent for
    // so long: no heartbeat, or no answer to a ping. Its host or its network is
    // gone, or it hangs.
    int64_t worker_timeout_ns = 5'000'000'000;
    // One that is not in service so long after it dialled is sent away.
    int64_t attach_timeout_ns = 15'000'000'000;
    Clock now_ns = MonotonicNs;
  };

  // What its server must accept: a Hello with every list full is smaller.
  static constexpr int kMaxMessageBytes = 1 << 20;

  RegistryService(Dispatcher* dispatcher, const tokenizer::Tokenizer* tokenizer)
      : RegistryService(dispatcher, tokenizer, Options()) {}
  RegistryService(Dispatcher* dispatcher, const tokenizer::Tokenizer* tokenizer,
                  Options options);
  ~RegistryService() override;

  grpc::ServerBidiReactor<v1::WorkerEvent, v1::WorkerCommand>* Attach(
      grpc::CallbackServerContext* context) override;

  // Attached workers with their latest heartbeat.
  std::vector<v1::WorkerInfo> ListWorkers();

  // Workers that left the service without having been told to drain or having
  // said that they do: they died, were silent, or lost a stream.
  int64_t num_lost(WorkerRole role) const {
    return num_lost_[static_cast<size_t>(role)];
  }

  // Tells the worker at `address` to drain, once. NOT_FOUND if none is
  // attached.
  absl::Status Drain(const std::string& address);

  // Takes silent workers out of service: their streams are cancelled, so that
  // one that wakes up closes its sessions and attaches anew. Ends attachments
  // that take too long. Returns when to call it next; one call at a time.
  int64_t Tick();

  // Ends all attachments: UNAVAILABLE to the workers, which try again.
  void Shutdown();

 private:
  class Attachment;

  std::vector<std::shared_ptr<Attachment>> attachments();
  void CountLost(WorkerRole role);
  // Both streams of the attachment have ended.
  void Forget(const std::shared_ptr<Attachment>& attachment);
  // Ends older attachments of the same address: a worker that attaches again
  // has given up its old stream, even where we have not noticed.
  void EndOlder(const std::string& address, uint64_t serial);

  Dispatcher* const dispatcher_;
  const tokenizer::Tokenizer* const tokenizer_;
  const Options options_;
  // Names this process for its workers: not 0.
  const uint64_t coordinator_ = RandomNumber() | 1;
  int64_t last_tick_ns_ = 0;                        // Tick's own
  std::array<std::atomic<int64_t>, 2> num_lost_{};  // by WorkerRole
  absl::Mutex mu_;
  absl::flat_hash_set<std::shared_ptr<Attachment>> attachments_
      ABSL_GUARDED_BY(mu_);
  uint64_t next_serial_ ABSL_GUARDED_BY(mu_) = 1;
  // Atomic so that attachments may look while they end.
  std::atomic<bool> shut_down_{false};
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_REGISTRY_SERVICE_H_
