// Bidirectional streams as message queues, for servers and for clients: Send
// from any thread, in order; incoming messages arrive in a callback.
//
// Callbacks run on gRPC's few threads: they must only enqueue. Each object
// keeps itself alive until its last callback (on_done) has returned; holders
// keep a shared_ptr as long as they may call Send.
//
// Bytes that are no message end the stream on both ends: on_done follows.

#ifndef COMMON_RPC_MESSAGE_STREAM_H_
#define COMMON_RPC_MESSAGE_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/client_message_stream.h"
#include "common/rpc/parse_mark.h"
#include "common/rpc/write_queue.h"

namespace nacre::rpc {

// The server's side. A service method returns get() of a created stream.
template <typename In, typename Out>
class ServerMessageStream final : public grpc::ServerBidiReactor<In, Out> {
 public:
  struct Callbacks {
    std::function<void(const In&)> on_message;
    std::function<void()> on_done;
  };

  static std::shared_ptr<ServerMessageStream> Create(Callbacks callbacks) {
    std::shared_ptr<ServerMessageStream> stream(
        new ServerMessageStream(std::move(callbacks)));
    stream->self_ = stream;
    stream->Read();
    return stream;
  }

  // False when the stream has ended; the message is then lost.
  bool Send(Out message) ABSL_LOCKS_EXCLUDED(mu_) {
    const Out* front = nullptr;
    {
      absl::MutexLock lock(&mu_);
      if (finishing_) return false;
      front = outgoing_.Add(std::move(message));
    }
    if (front != nullptr) this->StartWrite(front);
    return true;
  }

  // Ends the stream once what was sent is written. Only the first call counts.
  void Finish(grpc::Status status) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (finishing_) return;
      finishing_ = true;
      status_ = std::move(status);
      if (outgoing_.writing) return;
    }
    grpc::ServerBidiReactor<In, Out>::Finish(status_);
  }

 private:
  explicit ServerMessageStream(Callbacks callbacks)
      : callbacks_(std::move(callbacks)) {}

  void Read() {
    SetParseMark(&incoming_);
    this->StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      callbacks_.on_message(incoming_);
      Read();
    } else if (HasParseMark(incoming_)) {
      Finish(grpc::Status::OK);
    } else {
      Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                          "a message that cannot be parsed"));
    }
  }

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    const Out* front = nullptr;
    bool finish = false;
    {
      absl::MutexLock lock(&mu_);
      outgoing_.messages.pop_front();
      if (!ok) outgoing_.messages.clear();
      if (outgoing_.messages.empty()) {
        outgoing_.writing = false;
        finish = finishing_;
      } else {
        front = &outgoing_.messages.front();
      }
    }
    if (front != nullptr) this->StartWrite(front);
    if (finish) grpc::ServerBidiReactor<In, Out>::Finish(status_);
  }

  void OnCancel() override { Finish(grpc::Status::CANCELLED); }

  void OnDone() override {
    // Callbacks may hold what holds this stream: let go of them.
    const Callbacks callbacks = std::move(callbacks_);
    callbacks.on_done();
    std::shared_ptr<ServerMessageStream> last = std::move(self_);
  }

  Callbacks callbacks_;
  std::shared_ptr<ServerMessageStream> self_;
  In incoming_;
  absl::Mutex mu_;
  WriteQueue<Out> outgoing_ ABSL_GUARDED_BY(mu_);
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_;  // set once, before the base's Finish
};

}  // namespace nacre::rpc

#endif  // COMMON_RPC_MESSAGE_STREAM_H_
