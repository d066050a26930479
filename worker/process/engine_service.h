// A worker's gRPC service: decodes what its streams bring and puts it into the
// engine's inbox, sends what the engine says, nothing else.
//
// Thread-safe. `Rpc` is the generated service (v1::DraftWorker), `Control` and
// `Event` are its messages. The engine's `send` and `deliver` are this one's
// Send and Deliver.

#ifndef WORKER_PROCESS_ENGINE_SERVICE_H_
#define WORKER_PROCESS_ENGINE_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/engine/session_streams.h"
#include "worker/process/event_sender.h"
#include "worker/process/service.h"

namespace nacre::worker {

template <typename Rpc, typename Control, typename Event, typename Engine>
class EngineService final : public Rpc::CallbackService, public SessionService {
  using Commands = typename Engine::Commands;
  using Events = typename Engine::Events;

 public:
  EngineService()
      : streams_({[this](StreamId stream, auto message) {
                    Commands commands;
                    static_cast<decltype(message)&>(commands) =
                        std::move(message);
                    commands.stream = stream;
                    Push(std::move(commands));
                  },
                  [this](StreamId stream) {
                    Commands commands;
                    commands.stream = stream;
                    commands.stream_ended = true;
                    Push(std::move(commands));
                  },
                  [this](uint64_t coordinator, const wire::KvReport& report) {
                    absl::MutexLock lock(&report_mu_);
                    if (on_report_) on_report_(coordinator, report);
                  }}),
        sender_([this](StreamId stream, const Events& events) {
          streams_.Send(stream, events);
        }) {}

  // Messages before this are lost: call it before the server starts. The engine
  // outlives the server.
  void set_engine(Engine* engine) { engine_ = engine; }

  // Keeps the events for the next Deliver.
  void Send(StreamId stream, Events events) {
    sender_.Send(stream, std::move(events));
  }
  // Writes what was sent: of the engine's thread.
  void Deliver(Delivery delivery) { sender_.Deliver(delivery); }

  grpc::ServerBidiReactor<Control, Event>* Session(
      grpc::CallbackServerContext*) override {
    return streams_.Open();
  }

  grpc::Service* grpc_service() override { return this; }
  void SetAttachment(uint64_t coordinator, uint64_t attachment) override {
    streams_.SetAttachment(coordinator, attachment);
  }
  void SetOnReport(OnReport on_report) override {
    absl::MutexLock lock(&report_mu_);
    on_report_ = std::move(on_report);
  }
  uint64_t kept_lists(uint64_t coordinator) const override {
    return streams_.kept_lists(coordinator);
  }
  uint64_t pushed() const override { return pushed_; }
  void FinishStreams(const grpc::Status& status) override {
    sender_.Drain();
    streams_.FinishAll(status);
  }
  void AbandonStreams(uint64_t coordinator) override {
    streams_.Abandon(coordinator);
  }

 private:
  void Push(Commands commands) {
    // Counted first: what a thread has seen pushed is among the count.
    ++pushed_;
    engine_->Push(std::move(commands));
  }

  Engine* engine_ = nullptr;
  absl::Mutex report_mu_;
  OnReport on_report_ ABSL_GUARDED_BY(report_mu_);
  std::atomic<uint64_t> pushed_{0};
  SessionStreams<Control, Event> streams_;
  EventSender<Events> sender_;  // uses streams_
};

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_ENGINE_SERVICE_H_
