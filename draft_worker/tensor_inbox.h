// The way of a target's tensors into a draft engine, from the transport's
// threads.
//
// Thread-safe. May outlive the engine: after Detach it drops what comes.

#ifndef DRAFT_WORKER_TENSOR_INBOX_H_
#define DRAFT_WORKER_TENSOR_INBOX_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "draft_worker/draft_messages.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::draft_worker {

class TensorInbox : public std::enable_shared_from_this<TensorInbox> {
 public:
  // Into the engine's inbox, of any thread.
  using Push = std::function<void(DraftCommands)>;

  explicit TensorInbox(Push push) : push_(std::move(push)) {}

  void Detach() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    push_ = nullptr;
  }

  // For a channel that is subscribed to in `epoch` of its session.
  std::shared_ptr<worker::TensorSink> NewSink(uint32_t epoch) {
    return std::make_shared<Sink>(shared_from_this(), epoch);
  }

 private:
  class Sink final : public worker::TensorSink {
   public:
    Sink(std::shared_ptr<TensorInbox> inbox, uint32_t epoch)
        : inbox_(std::move(inbox)), epoch_(epoch) {}

    void OnTensor(worker::ReceivedTensor received) override {
      DraftCommands commands;
      commands.tensors.push_back(std::move(received));
      inbox_->PushIfAttached(std::move(commands));
    }

    // Why has been said by the transport.
    void OnLost(uint64_t channel, const absl::Status&) override {
      DraftCommands commands;
      commands.tensors_lost.push_back({channel, epoch_});
      inbox_->PushIfAttached(std::move(commands));
    }

   private:
    const std::shared_ptr<TensorInbox> inbox_;
    const uint32_t epoch_;
  };

  void PushIfAttached(DraftCommands commands) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (push_ != nullptr) push_(std::move(commands));
  }

  absl::Mutex mu_;
  Push push_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_TENSOR_INBOX_H_
