// The way of a target's tensors into a draft engine, from the transport's
// threads.
//
// Thread-safe. May outlive the engine: after Detach it drops what comes.

#ifndef DRAFT_WORKER_TENSOR_INBOX_H_
#define DRAFT_WORKER_TENSOR_INBOX_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "draft_worker/draft_messages.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::draft_worker {

class TensorInbox final : public worker::TensorSink {
 public:
  // Into the engine's inbox, of any thread.
  using Push = std::function<void(DraftCommands)>;

  explicit TensorInbox(Push push) : push_(std::move(push)) {}

  void Detach() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    push_ = nullptr;
  }

  void OnTensor(worker::ReceivedTensor received) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    DraftCommands commands;
    commands.tensors.push_back(std::move(received));
    PushIfAttached(std::move(commands));
  }

  // Why has been said by the transport.
  void OnLost(uint64_t channel, const absl::Status&) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    DraftCommands commands;
    commands.tensors_lost.push_back(channel);
    PushIfAttached(std::move(commands));
  }

 private:
  void PushIfAttached(DraftCommands commands) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (push_ != nullptr) push_(std::move(commands));
  }

  absl::Mutex mu_;
  Push push_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_TENSOR_INBOX_H_
