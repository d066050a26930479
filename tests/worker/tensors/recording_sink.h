// A TensorSink that keeps what it was told until a test asks.
//
// Thread-safe.

#ifndef TESTS_WORKER_TENSORS_RECORDING_SINK_H_
#define TESTS_WORKER_TENSORS_RECORDING_SINK_H_

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::worker {

class RecordingSink final : public TensorSink {
 public:
  void OnTensor(ReceivedTensor received) override {
    absl::MutexLock lock(&mu_);
    tensors_.push_back(std::move(received));
  }
  void OnLost(uint64_t channel, const absl::Status& status) override {
    absl::MutexLock lock(&mu_);
    lost_.emplace_back(channel, status);
  }

  // The next ones, waited for.
  ReceivedTensor AwaitTensor() {
    absl::MutexLock lock(&mu_);
    const auto any = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return !tensors_.empty();
    };
    if (!mu_.AwaitWithTimeout(absl::Condition(&any), absl::Minutes(1))) {
      ADD_FAILURE() << "no tensor";
      return {};
    }
    ReceivedTensor first = std::move(tensors_.front());
    tensors_.pop_front();
    return first;
  }
  std::pair<uint64_t, absl::Status> AwaitLoss() {
    absl::MutexLock lock(&mu_);
    const auto any = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return !lost_.empty();
    };
    if (!mu_.AwaitWithTimeout(absl::Condition(&any), absl::Minutes(1))) {
      ADD_FAILURE() << "nothing was lost";
      return {};
    }
    auto first = std::move(lost_.front());
    lost_.pop_front();
    return first;
  }
  size_t num_tensors() const {
    absl::MutexLock lock(&mu_);
    return tensors_.size();
  }

 private:
  mutable absl::Mutex mu_;
  std::deque<ReceivedTensor> tensors_ ABSL_GUARDED_BY(mu_);
  std::deque<std::pair<uint64_t, absl::Status>> lost_ ABSL_GUARDED_BY(mu_);
};

// Polls until `condition` holds; false after a minute.
inline bool Eventually(const std::function<bool()>& condition) {
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace nacre::worker

#endif  // TESTS_WORKER_TENSORS_RECORDING_SINK_H_
