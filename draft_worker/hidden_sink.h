// The way of hidden states into a draft engine, from the transport's threads.
// Only for the engine's own sources.
//
// Thread-safe. May outlive the engine: after Detach it drops what comes.

#ifndef DRAFT_WORKER_HIDDEN_SINK_H_
#define DRAFT_WORKER_HIDDEN_SINK_H_

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "draft_worker/draft_engine.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::draft_worker {

class DraftEngine::HiddenSink final : public worker::TensorSink {
 public:
  explicit HiddenSink(DraftEngine* engine) : engine_(engine) {}

  void Detach() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    engine_ = nullptr;
  }

  void OnTensor(worker::ReceivedTensor received) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    DraftCommands commands;
    commands.hidden.push_back(std::move(received));
    Push(std::move(commands));
  }

  // Why has been said by the transport.
  void OnLost(uint64_t channel, const absl::Status&) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    DraftCommands commands;
    commands.hidden_lost.push_back(channel);
    Push(std::move(commands));
  }

 private:
  void Push(DraftCommands commands) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (engine_ != nullptr) engine_->Push(std::move(commands));
  }

  absl::Mutex mu_;
  DraftEngine* engine_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_HIDDEN_SINK_H_
