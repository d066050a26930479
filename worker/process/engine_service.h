// A worker's gRPC service: decodes what its streams bring and puts it into the
// engine's inbox, sends what the engine says, nothing else.
//
// Thread-safe. `Rpc` is the generated service (v1::DraftWorker), `Control` and
// `Event` are its messages. The engine's `send` and `deliver` are this one's
// Send and Deliver.

#ifndef WORKER_PROCESS_ENGINE_SERVICE_H_
#define WORKER_PROCESS_ENGINE_SERVICE_H_

#include <cstdint>
#include <utility>

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
                    engine_->Push(std::move(commands));
                  },
                  [this](StreamId stream) {
                    Commands commands;
                    commands.stream = stream;
                    commands.stream_ended = true;
                    engine_->Push(std::move(commands));
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
  void SetAttachment(uint64_t attachment) override {
    streams_.SetAttachment(attachment);
  }
  void FinishStreams(const grpc::Status& status) override {
    sender_.Drain();
    streams_.FinishAll(status);
  }
  void AbandonStreams() override { streams_.Abandon(); }

 private:
  Engine* engine_ = nullptr;
  SessionStreams<Control, Event> streams_;
  EventSender<Events> sender_;  // uses streams_
};

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_ENGINE_SERVICE_H_
