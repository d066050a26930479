// Registry.Attach: workers dial in, prove their vocabulary, and are dialled
// back (proto/worker.proto). An attachment lives as long as both streams do.

#ifndef COORDINATOR_REGISTRY_SERVICE_H_
#define COORDINATOR_REGISTRY_SERVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/security.h"
#include "coordinator/clock.h"
#include "coordinator/dispatcher.h"
#include "proto/admin.pb.h"
#include "proto/worker.grpc.pb.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

// Thread-safe. The dispatcher and the tokenizer must outlive it; the server
// that runs it must have been shut down before it goes. The destructor waits
// for the session streams that we dialled: nobody calls the dispatcher after.
class RegistryService final : public v1::Registry::CallbackService {
 public:
  struct Options {
    rpc::ChannelSecurity security;  // of the channels to workers
    // A worker in service counts as lost when one of its two streams has said
    // nothing for so long, no heartbeat or no answer to a ping: its host or its
    // network is gone, or it hangs.
    int64_t worker_timeout_ns = 5'000'000'000;
    Clock now_ns = MonotonicNs;
  };

  RegistryService(Dispatcher* dispatcher, const tokenizer::Tokenizer* tokenizer)
      : RegistryService(dispatcher, tokenizer, Options()) {}
  RegistryService(Dispatcher* dispatcher, const tokenizer::Tokenizer* tokenizer,
                  Options options);
  ~RegistryService() override;

  grpc::ServerBidiReactor<v1::WorkerEvent, v1::WorkerCommand>* Attach(
      grpc::CallbackServerContext* context) override;

  // Attached workers with their latest heartbeat.
  std::vector<v1::WorkerInfo> ListWorkers();

  // Tells the worker at `address` to drain. NOT_FOUND if none is attached.
  absl::Status Drain(const std::string& address);

  // Takes silent workers out of service: their streams are cancelled, so that
  // one that wakes up closes its sessions and attaches anew. Returns when to
  // call it next; one call at a time.
  int64_t Tick();

  // Ends all attachments: UNAVAILABLE to the workers, who will try again.
  void Shutdown();

 private:
  class Attachment;

  std::vector<std::shared_ptr<Attachment>> attachments();
  // Both streams of the attachment have ended.
  void Forget(const std::shared_ptr<Attachment>& attachment);
  // Ends older attachments of the same address: a worker that attaches again
  // has given up its old stream, even where we have not noticed.
  void EndOlder(const std::string& address, uint64_t serial);

  Dispatcher* const dispatcher_;
  const tokenizer::Tokenizer* const tokenizer_;
  const Options options_;
  int64_t last_tick_ns_ = 0;  // Tick's own
  absl::Mutex mu_;
  absl::flat_hash_set<std::shared_ptr<Attachment>> attachments_
      ABSL_GUARDED_BY(mu_);
  uint64_t next_serial_ ABSL_GUARDED_BY(mu_) = 1;
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_REGISTRY_SERVICE_H_
