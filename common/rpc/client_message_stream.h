// The client's side of a stream: see common/rpc/message_stream.h, which is what
// to include.

#ifndef COMMON_RPC_CLIENT_MESSAGE_STREAM_H_
#define COMMON_RPC_CLIENT_MESSAGE_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/parse_mark.h"
#include "common/rpc/write_queue.h"

namespace nacre::rpc {

// Used like this:
//   auto stream = ClientMessageStream<Out, In>::Create(callbacks);
//   stub->async()->Session(stream->context(), stream.get());
//   stream->Start();
template <typename Out, typename In>
class ClientMessageStream final : public grpc::ClientBidiReactor<Out, In> {
 public:
  struct Callbacks {
    std::function<void(const In&)> on_message;
    std::function<void(const absl::Status&)> on_done;
  };

  static std::shared_ptr<ClientMessageStream> Create(Callbacks callbacks) {
    std::shared_ptr<ClientMessageStream> stream(
        new ClientMessageStream(std::move(callbacks)));
    stream->self_ = stream;
    return stream;
  }

  grpc::ClientContext* context() { return &context_; }

  void Start() {
    // Writes come from outside reactions: hold the call open for them.
    this->AddHold();
    Read();
    this->StartCall();
  }

  // False when the stream has ended or writing was closed; the message is lost.
  bool Send(Out message) ABSL_LOCKS_EXCLUDED(mu_) {
    const Out* front = nullptr;
    {
      absl::MutexLock lock(&mu_);
      if (ended_ || closing_) return false;
      front = outgoing_.Add(std::move(message));
    }
    if (front != nullptr) this->StartWrite(front);
    return true;
  }

  // Half-closes once what was sent is written; the server then ends the stream.
  void CloseWrites() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (ended_ || closing_) return;
      closing_ = true;
      if (outgoing_.writing) return;
      outgoing_.writing = true;
    }
    this->StartWritesDone();
  }

  void Cancel() { context_.TryCancel(); }

 private:
  explicit ClientMessageStream(Callbacks callbacks)
      : callbacks_(std::move(callbacks)) {}

  void Read() {
    SetParseMark(&incoming_);
    this->StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    if (ok) {
      callbacks_.on_message(incoming_);
      Read();
      return;
    }
    // The peer lives and would go on: its stream is no longer read.
    malformed_ = !HasParseMark(incoming_);
    if (malformed_) context_.TryCancel();
    bool release = false;
    {
      absl::MutexLock lock(&mu_);
      ended_ = true;
      release = !outgoing_.writing;
    }
    if (release) this->RemoveHold();
  }

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    const Out* front = nullptr;
    bool close = false;
    bool release = false;
    {
      absl::MutexLock lock(&mu_);
      outgoing_.messages.pop_front();
      if (!ok || ended_) outgoing_.messages.clear();
      if (!outgoing_.messages.empty()) {
        front = &outgoing_.messages.front();
      } else if (closing_ && ok && !ended_) {
        close = true;
      } else {
        outgoing_.writing = false;
        release = ended_;
      }
    }
    if (front != nullptr) this->StartWrite(front);
    if (close) this->StartWritesDone();
    if (release) this->RemoveHold();
  }

  void OnWritesDoneDone(bool) override ABSL_LOCKS_EXCLUDED(mu_) {
    bool release = false;
    {
      absl::MutexLock lock(&mu_);
      outgoing_.writing = false;
      release = ended_;
    }
    if (release) this->RemoveHold();
  }

  void OnDone(const grpc::Status& status) override {
    const Callbacks callbacks = std::move(callbacks_);
    callbacks.on_done(
        malformed_ ? absl::InternalError("a message that cannot be parsed")
                   : FromGrpcStatus(status));
    std::shared_ptr<ClientMessageStream> last = std::move(self_);
  }

  Callbacks callbacks_;
  std::shared_ptr<ClientMessageStream> self_;
  grpc::ClientContext context_;
  In incoming_;
  bool malformed_ = false;  // of the last read; reactions only
  absl::Mutex mu_;
  WriteQueue<Out> outgoing_ ABSL_GUARDED_BY(mu_);
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace nacre::rpc

#endif  // COMMON_RPC_CLIENT_MESSAGE_STREAM_H_
