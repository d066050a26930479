// A worker for tests: real gRPC on a free port, no model. It attaches to a
// coordinator, answers pings, records what it is told and says what the test
// scripts. Its vocabulary is ByteTokenizer's.
//
// Thread-safe. The coordinator's server may go before or after it.

#ifndef TESTS_COORDINATOR_FAKE_WORKER_H_
#define TESTS_COORDINATOR_FAKE_WORKER_H_

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_stream.h"
#include "common/rpc/server.h"
#include "proto/worker.grpc.pb.h"
#include "tests/coordinator/byte_tokenizer.h"
#include "wire/hello.h"

namespace nacre::coordinator {

// How long a test waits before it fails; never how long it takes.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// A value that one thread sets and another waits for.
template <typename T>
class Mailbox {
 public:
  void Put(T value) {
    absl::MutexLock lock(&mu_);
    values_.push_back(std::move(value));
  }
  // Waits until `count` values fit; false after kPatience without them.
  bool Await(const std::function<bool(const T&)>& fits, int count = 1) {
    absl::MutexLock lock(&mu_);
    const auto there = [&]() {
      return std::count_if(values_.begin(), values_.end(), fits) >= count;
    };
    return mu_.AwaitWithTimeout(absl::Condition(&there), kPatience);
  }
  std::vector<T> values() {
    absl::MutexLock lock(&mu_);
    return values_;
  }

 private:
  absl::Mutex mu_;
  std::vector<T> values_;
};

// One side of the worker: Service is DraftWorker or TargetWorker.
template <typename Service, typename Control, typename Event>
class FakeSessionService final : public Service::CallbackService {
 public:
  using Stream = rpc::ServerMessageStream<Control, Event>;

  // `script` runs on gRPC's threads for every message, after it was recorded.
  void SetScript(std::function<void(const Control&)> script) {
    absl::MutexLock lock(&mu_);
    script_ = std::move(script);
  }
  std::atomic<bool> answers_pings{true};
  std::atomic<uint64_t> attachment{0};  // told in the answers
  Mailbox<Control> controls;
  Mailbox<bool> ended;  // one value for every stream that has ended

  grpc::ServerBidiReactor<Control, Event>* Session(
      grpc::CallbackServerContext*) override {
    auto stream =
        Stream::Create({[this](const Control& control) { OnControl(control); },
                        [this] { ended.Put(true); }});
    absl::MutexLock lock(&mu_);
    stream_ = stream;
    return stream.get();
  }

  bool Send(Event event) { return stream()->Send(std::move(event)); }
  // Ends the session stream from the worker's side.
  void Finish(const grpc::Status& status) { stream()->Finish(status); }

 private:
  std::shared_ptr<Stream> stream() {
    absl::MutexLock lock(&mu_);
    return stream_;
  }
  void OnControl(const Control& control) {
    if (control.has_ping() && answers_pings) {
      Event event;
      event.mutable_pong()->set_coordinator_ns(control.ping().coordinator_ns());
      event.mutable_pong()->set_worker_ns(1000);
      event.mutable_pong()->set_attachment(attachment);
      Send(std::move(event));
    }
    controls.Put(control);
    std::function<void(const Control&)> script;
    {
      absl::MutexLock lock(&mu_);
      script = script_;
    }
    if (script) script(control);
  }

  absl::Mutex mu_;
  std::shared_ptr<Stream> stream_;
  std::function<void(const Control&)> script_;
};

class FakeWorker {
 public:
  using AttachStream =
      rpc::ClientMessageStream<v1::WorkerEvent, v1::WorkerCommand>;

  explicit FakeWorker(v1::WorkerRole role)
      : server_(
            *rpc::RpcServer::Start({"127.0.0.1:0", ""}, {&target, &draft})) {
    hello.set_protocol_version(wire::kProtocolVersion);
    hello.set_role(role);
    hello.set_address(server_->address());
    hello.set_incarnation("first life");
    hello.set_fingerprint(role == v1::WORKER_ROLE_TARGET ? "big" : "small");
    hello.set_numerics_id("fake");
    hello.set_model_name("pearl");
    hello.set_model_vocab_size(300);
    hello.set_tokenizer_vocab_size(ByteTokenizer::kVocabSize);
    hello.set_context_length(1024);
    hello.add_eos_token_ids(ByteTokenizer::kEos);
  }
  ~FakeWorker() {
    for (const auto& stream : attach_streams_) stream->Cancel();
    detached.Await([](const absl::Status&) { return true; },
                   static_cast<int>(attach_streams_.size()));
    server_->Shutdown(absl::ZeroDuration());
  }

  const std::string& address() const { return server_->address(); }

  // Dials the coordinator and says hello. Every call is a new stream.
  void Attach(const std::string& coordinator) {
    v1::WorkerEvent event;
    *event.mutable_hello() = hello;
    AttachWith(coordinator, std::move(event));
  }
  void AttachWith(const std::string& coordinator, v1::WorkerEvent first) {
    Dial(coordinator);
    Say(std::move(first));
  }
  // Says nothing.
  void Dial(const std::string& coordinator) {
    auto stub = v1::Registry::NewStub(rpc::CreateChannel(coordinator));
    auto stream = AttachStream::Create(
        {[this](const v1::WorkerCommand& command) { OnCommand(command); },
         [this](const absl::Status& status) { detached.Put(status); }});
    {
      absl::MutexLock lock(&mu_);
      attach_streams_.push_back(stream);
    }
    stub->async()->Attach(stream->context(), stream.get());
    stream->Start();
  }
  bool AwaitAccepted(int times = 1) {
    return commands.Await(
        [](const v1::WorkerCommand& command) { return command.has_accepted(); },
        times);
  }
  // Waits until so many Attach streams have ended; the last one's status.
  absl::Status AwaitDetached(int times = 1) {
    if (!detached.Await([](const absl::Status&) { return true; }, times)) {
      return absl::InternalError("the Attach stream did not end");
    }
    return detached.values().back();
  }
  void Heartbeat(v1::Heartbeat heartbeat = {}) {
    v1::WorkerEvent event;
    *event.mutable_heartbeat() = std::move(heartbeat);
    Say(std::move(event));
  }
  void Say(v1::WorkerEvent event) { LastStream()->Send(std::move(event)); }
  // The Attach stream breaks.
  void Detach() { LastStream()->Cancel(); }

  v1::Hello hello;
  std::string proof;  // instead of the true one
  std::atomic<bool> proves{true};
  FakeSessionService<v1::TargetWorker, v1::TargetControl, v1::TargetEvent>
      target;
  FakeSessionService<v1::DraftWorker, v1::DraftControl, v1::DraftEvent> draft;
  Mailbox<v1::WorkerCommand> commands;
  Mailbox<absl::Status> detached;

 private:
  std::shared_ptr<AttachStream> LastStream() {
    absl::MutexLock lock(&mu_);
    return attach_streams_.back();
  }
  void OnCommand(const v1::WorkerCommand& command) {
    if (command.has_vocabulary_request()) {
      target.attachment = command.vocabulary_request().attachment();
      draft.attachment = command.vocabulary_request().attachment();
    }
    if (command.has_vocabulary_request() && proves) {
      v1::WorkerEvent event;
      event.mutable_vocabulary_proof()->set_hash(
          !proof.empty() ? proof
                         : ByteTokenizer().VocabularyHash(
                               command.vocabulary_request().common_size()));
      LastStream()->Send(std::move(event));
    }
    commands.Put(command);
  }

  absl::Mutex mu_;
  std::vector<std::shared_ptr<AttachStream>> attach_streams_;
  std::unique_ptr<rpc::RpcServer> server_;
};

}  // namespace nacre::coordinator

#endif  // TESTS_COORDINATOR_FAKE_WORKER_H_
