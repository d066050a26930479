// Thousands of streams at once from one process, without a thread for each.

#ifndef TESTS_INTEGRATION_STREAM_CROWD_H_
#define TESTS_INTEGRATION_STREAM_CROWD_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "proto/inference.grpc.pb.h"
#include "tests/integration/streams.h"

namespace nacre::integration {

// Thread-safe, except that one thread starts the streams.
class StreamCrowd {
 public:
  // The streams take turns on `num_channels` connections: a server bounds the
  // streams of one.
  StreamCrowd(const std::string& address, int num_channels) {
    for (int i = 0; i < num_channels; ++i) {
      stubs_.push_back(v1::Inference::NewStub(rpc::CreateChannel(address)));
    }
  }
  ~StreamCrowd() {
    for (const auto& stream : streams_) stream->Cancel();
    AwaitEnded(static_cast<int>(streams_.size()));
  }

  void Start(const v1::GenerateRequest& request) {
    v1::Inference::Stub& stub = *stubs_[streams_.size() % stubs_.size()];
    streams_.push_back(std::make_unique<Stream>(this, request));
    streams_.back()->Start(stub);
  }

  int num_ended() {
    absl::MutexLock lock(&mu_);
    return num_ended_;
  }
  // Whether so many have ended before some minutes passed.
  bool AwaitEnded(int count) {
    absl::MutexLock lock(&mu_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return num_ended_ >= count;
    };
    return mu_.AwaitWithTimeout(absl::Condition(&there), kPatience);
  }

  // Of the i-th stream, which has ended. Its tokens came in order, each once.
  const StreamOutcome& outcome(size_t i) const { return streams_[i]->outcome; }

 private:
  static constexpr absl::Duration kPatience = absl::Minutes(10);

  class Stream final : public grpc::ClientReadReactor<v1::GenerateResponse> {
   public:
    Stream(StreamCrowd* crowd, v1::GenerateRequest request)
        : crowd_(crowd), request_(std::move(request)) {
      context_.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    }
    void Start(v1::Inference::Stub& stub) {
      stub.async()->Generate(&context_, &request_, this);
      StartRead(&response_);
      StartCall();
    }
    void Cancel() { context_.TryCancel(); }

    void OnReadDone(bool ok) override {
      if (!ok) return;
      const v1::Chunk& chunk = response_.chunk();
      if (response_.has_chunk()) {
        EXPECT_EQ(chunk.first_index(), outcome.streamed.size());
      }
      outcome.streamed.insert(outcome.streamed.end(), chunk.token_ids().begin(),
                              chunk.token_ids().end());
      if (response_.has_complete()) {
        EXPECT_EQ(Ids(response_.complete()), outcome.streamed);
      }
      StartRead(&response_);
    }
    void OnDone(const grpc::Status& status) override {
      outcome.status =
          absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                       status.error_message());
      absl::MutexLock lock(&crowd_->mu_);
      ++crowd_->num_ended_;
    }

    StreamOutcome outcome;

   private:
    StreamCrowd* const crowd_;
    const v1::GenerateRequest request_;
    v1::GenerateResponse response_;
    grpc::ClientContext context_;
  };

  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs_;
  std::vector<std::unique_ptr<Stream>> streams_;
  absl::Mutex mu_;
  int num_ended_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_STREAM_CROWD_H_
