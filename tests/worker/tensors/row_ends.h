// The two ends of a target's rows, without a model: the engine that has them,
// and a draft's session that reads them.
//
// An engine has a thread of its own. A session is thread-safe.

#ifndef TESTS_WORKER_TENSORS_ROW_ENDS_H_
#define TESTS_WORKER_TENSORS_ROW_ENDS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "tests/worker/tensors/nccl_pair.h"

namespace nacre::worker {

inline constexpr uint32_t kRowsEpoch = 9;

// What a draft reads.
struct RowKind {
  std::string name;
  model::TargetRowShape shape;
  bool in_bf16 = false;
};
inline model::TargetRowShape FeatureShape(int count) {
  model::TargetRowShape shape;
  shape.num_features = count;
  return shape;
}
// A row of a channel, which says where it is.
inline std::vector<float> EngineRow(uint64_t channel, int position, int size) {
  return ValuesOf(
      AnyBits(channel, static_cast<int>(channel) * 10000 + position, size));
}

// A target engine's thread as far as its rows are concerned: it has one more
// position of each session with each step, as RowPublisher sends what readers
// want of them.
class RowEngine {
 public:
  struct Session {
    uint64_t channel = 0;
    RowKind kind;
    int first = 0;  // before it there are no features
  };

  RowEngine(TensorPublisherService* publisher, std::vector<Session> sessions)
      : publisher_(publisher), sessions_(std::move(sessions)) {
    publisher_->SetRowsWanted([this] { ++wakes_; });
    thread_ = std::thread([this] { Run(); });
  }
  ~RowEngine() {
    stopping_ = true;
    thread_.join();
    publisher_->SetRowsWanted(nullptr);
  }

  // Steps until there are as many positions. Without a pause more are made
  // than one run holds.
  void StepTo(int there, absl::Duration pause = absl::Microseconds(50)) {
    pause_us_ = absl::ToInt64Microseconds(pause);
    goal_ = there;
  }
  void AwaitSteps() {
    EXPECT_TRUE(Eventually([this] { return there_ >= goal_; }));
  }
  // Steps are made and readers are looked at.
  void AwaitTurn() {
    const int before = turns_;
    EXPECT_TRUE(Eventually([&] { return turns_ > before + 1; }));
  }

 private:
  void Run() {
    while (!stopping_) {
      if (there_ < goal_) {
        there_ = pause_us_ == 0 ? goal_.load() : there_ + 1;
      } else if (wakes_.exchange(0) == 0) {
        ++turns_;
        absl::SleepFor(absl::Microseconds(100));
        continue;
      }
      for (const Session& session : sessions_) {
        for (int i = 0; i < 8 && PublishRows(session); ++i) {
        }
      }
      ++turns_;
      absl::SleepFor(absl::Microseconds(pause_us_.load()));
    }
  }

  bool PublishRows(const Session& session) {
    const auto wanted = publisher_->WantedRows(session.channel, there_);
    if (!wanted.has_value()) return false;
    if (wanted->first < session.first) {
      publisher_->SkipRows(session.channel, *wanted, session.first);
      return true;
    }
    const int size = session.kind.shape.row_size();
    const int most = std::max(1, (1 << 18) / size);
    const int count =
        std::min({wanted->end, there_.load(), wanted->first + most}) -
        wanted->first;
    Tensor rows;
    rows.tag.channel = session.channel;
    rows.tag.epoch = kRowsEpoch;
    rows.tag.position = wanted->first;
    rows.tag.is_rows = true;
    rows.in_bf16 = session.kind.in_bf16;
    rows.shape = {count, size};
    std::vector<float> values;
    for (int i = 0; i < count; ++i) {
      const auto row = EngineRow(session.channel, wanted->first + i, size);
      values.insert(values.end(), row.begin(), row.end());
    }
    rows.values = kernels::FloatView(values);
    publisher_->PublishRows(rows);
    return true;
  }

  TensorPublisherService* const publisher_;
  const std::vector<Session> sessions_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> wakes_{0};
  std::atomic<int> goal_{0};
  std::atomic<int> there_{0};
  std::atomic<int> turns_{0};
  std::atomic<int64_t> pause_us_{50};
  std::thread thread_;
};

// A draft's session: it has asked for so many rows, and knows those that came.
class RowSession final : public TensorSink {
 public:
  RowSession(TensorReader* reader, std::string address, uint64_t channel,
             const RowKind& kind, int end)
      : reader_(reader),
        channel_(channel),
        size_(static_cast<size_t>(kind.shape.row_size())),
        asked_(end) {
    subscription_.address = std::move(address);
    subscription_.channel = channel;
    subscription_.num_values = size_;
    subscription_.rows = {kind.shape, "", end, kRowsEpoch, ""};
  }
  static std::shared_ptr<RowSession> Subscribe(TensorReader* reader,
                                               const std::string& address,
                                               uint64_t channel,
                                               const RowKind& kind,
                                               int end = 10000) {
    auto session =
        std::make_shared<RowSession>(reader, address, channel, kind, end);
    session->subscription_.sink = session;
    reader->Subscribe(std::exchange(session->subscription_, {}));
    return session;
  }

  void OnTensor(ReceivedTensor received) override {
    const Tensor& rows = received.tensor;
    const std::vector<uint32_t> bits = BitsOf(rows);
    absl::MutexLock lock(&mu_);
    if (rows.tag.position != next_) {
      EXPECT_EQ(next_, 0) << "rows in the middle are missing, or came again";
      EXPECT_GT(rows.tag.position, next_);
      asked_ += rows.tag.position - next_;
      first_ = rows.tag.position;
    }
    next_ = rows.tag.position + rows.shape[0];
    EXPECT_LE(next_, asked_) << "more than was asked for";
    bits_.insert(bits_.end(), bits.begin(), bits.end());
    largest_ = std::max(largest_, rows.wire_bytes());
  }
  void OnLost(uint64_t, const absl::Status& status) override {
    ADD_FAILURE() << "a channel is lost: " << status;
  }

  // For more.
  void Ask(int end) {
    {
      absl::MutexLock lock(&mu_);
      asked_ = end;
    }
    reader_->WantRows(channel_, end);
  }
  // All before it have come.
  void Await(int end) {
    EXPECT_TRUE(Eventually([&] { return next() >= end; }))
        << next() << " of " << end;
  }
  int next() const {
    absl::MutexLock lock(&mu_);
    return next_;
  }
  int first() const {
    absl::MutexLock lock(&mu_);
    return first_;
  }
  std::vector<uint32_t> bits() const {
    absl::MutexLock lock(&mu_);
    return bits_;
  }
  size_t largest() const {  // tensor, in bytes
    absl::MutexLock lock(&mu_);
    return largest_;
  }
  size_t size() const { return size_; }

 private:
  TensorReader* const reader_;
  const uint64_t channel_;
  const size_t size_;
  TensorReader::Subscription subscription_;
  mutable absl::Mutex mu_;
  int first_ ABSL_GUARDED_BY(mu_) = 0;
  int next_ ABSL_GUARDED_BY(mu_) = 0;
  int asked_ ABSL_GUARDED_BY(mu_);
  std::vector<uint32_t> bits_ ABSL_GUARDED_BY(mu_);
  size_t largest_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace nacre::worker

#endif  // TESTS_WORKER_TENSORS_ROW_ENDS_H_
