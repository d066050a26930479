// A ResponseSink that remembers what it was told. Thread-safe.

#ifndef TESTS_COORDINATOR_RECORDING_SINK_H_
#define TESTS_COORDINATOR_RECORDING_SINK_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "coordinator/dispatch/request.h"

namespace nacre::coordinator {

class RecordingSink final : public ResponseSink {
 public:
  void OnChunk(const Chunk& chunk) override {
    absl::MutexLock lock(&mu_);
    chunks_.push_back(chunk);
  }
  void OnComplete(const RequestSpec&, const Completion& completion) override {
    absl::MutexLock lock(&mu_);
    completion_ = completion;
    ++num_ends_;
  }
  void OnError(const absl::Status& status) override {
    absl::MutexLock lock(&mu_);
    error_ = status;
    ++num_ends_;
  }
  int pending_chunks() const override {
    absl::MutexLock lock(&mu_);
    return pending_;
  }
  int64_t taken_chunks() const override {
    absl::MutexLock lock(&mu_);
    return taken_;
  }

  void Abandon() override {
    absl::MutexLock lock(&mu_);
    abandoned_ = num_ends_ == 0;
  }

  // Before the end, as it must be.
  bool abandoned() const {
    absl::MutexLock lock(&mu_);
    return abandoned_;
  }
  // Fewer than before: the client has taken some.
  void set_pending_chunks(int pending) {
    absl::MutexLock lock(&mu_);
    taken_ += std::max(0, pending_ - pending);
    pending_ = pending;
  }
  std::vector<Chunk> chunks() const {
    absl::MutexLock lock(&mu_);
    return chunks_;
  }
  std::string streamed_text() const {
    std::string text;
    for (const Chunk& chunk : chunks()) text += chunk.text;
    return text;
  }
  absl::optional<Completion> completion() const {
    absl::MutexLock lock(&mu_);
    return completion_;
  }
  absl::Status error() const {
    absl::MutexLock lock(&mu_);
    return error_;
  }
  // Completions and errors together: never more than one.
  int num_ends() const {
    absl::MutexLock lock(&mu_);
    return num_ends_;
  }

 private:
  mutable absl::Mutex mu_;
  std::vector<Chunk> chunks_;
  absl::optional<Completion> completion_;
  absl::Status error_;
  int num_ends_ = 0;
  int pending_ = 0;
  int64_t taken_ = 0;
  bool abandoned_ = false;
};

}  // namespace nacre::coordinator

#endif  // TESTS_COORDINATOR_RECORDING_SINK_H_
