// A coordinator's Registry that does what the test says: hands out what the
// worker sent, sends commands, ends streams.
//
// Thread-safe.

#ifndef TESTS_WORKER_FAKE_REGISTRY_H_
#define TESTS_WORKER_FAKE_REGISTRY_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/message_stream.h"
#include "proto/worker.grpc.pb.h"

namespace nacre::worker {

class FakeRegistry : public v1::Registry::CallbackService {
 public:
  using Stream = rpc::ServerMessageStream<v1::WorkerEvent, v1::WorkerCommand>;

  grpc::ServerBidiReactor<v1::WorkerEvent, v1::WorkerCommand>* Attach(
      grpc::CallbackServerContext*) override {
    absl::MutexLock lock(&mu_);
    Stream::Callbacks callbacks;
    callbacks.on_message = [this](const v1::WorkerEvent& event) {
      absl::MutexLock lock(&mu_);
      events_.push_back(event);
    };
    callbacks.on_done = [this] {
      absl::MutexLock lock(&mu_);
      ++num_ended_;
    };
    stream_ = Stream::Create(std::move(callbacks));
    ++num_attached_;
    return stream_.get();
  }

  v1::WorkerEvent NextEvent() {
    absl::MutexLock lock(&mu_);
    const auto arrived = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return !events_.empty();
    };
    if (!mu_.AwaitWithTimeout(absl::Condition(&arrived), absl::Seconds(60))) {
      ADD_FAILURE() << "the worker says nothing";
      return {};
    }
    v1::WorkerEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

  void AwaitEnded(int count) {
    absl::MutexLock lock(&mu_);
    const auto ended = [this, count]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return num_ended_ >= count;
    };
    EXPECT_TRUE(
        mu_.AwaitWithTimeout(absl::Condition(&ended), absl::Seconds(60)));
  }

  void Ask(uint32_t common_size, uint64_t attachment = 1,
           uint64_t coordinator = 0) {
    v1::WorkerCommand command;
    command.mutable_vocabulary_request()->set_common_size(common_size);
    command.mutable_vocabulary_request()->set_attachment(attachment);
    command.mutable_vocabulary_request()->set_coordinator(coordinator);
    Send(command);
  }
  void Accept() {
    v1::WorkerCommand command;
    command.mutable_accepted();
    Send(command);
  }
  void Send(const v1::WorkerCommand& command) { stream()->Send(command); }
  void Finish(const grpc::Status& status) { stream()->Finish(status); }
  int num_attached() {
    absl::MutexLock lock(&mu_);
    return num_attached_;
  }

 private:
  std::shared_ptr<Stream> stream() {
    absl::MutexLock lock(&mu_);
    return stream_;
  }

  absl::Mutex mu_;
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::WorkerEvent> events_ ABSL_GUARDED_BY(mu_);
  int num_attached_ ABSL_GUARDED_BY(mu_) = 0;
  int num_ended_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace nacre::worker

#endif  // TESTS_WORKER_FAKE_REGISTRY_H_
