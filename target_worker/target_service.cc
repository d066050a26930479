#include "target_worker/target_service.h"

#include <utility>

namespace nacre::target_worker {

TargetService::TargetService()
    : streams_({[this](worker::StreamId stream, wire::TargetCommands message) {
                  engine_->Push({std::move(message), stream});
                },
                [this](worker::StreamId stream) {
                  TargetCommands commands;
                  commands.stream = stream;
                  commands.stream_ended = true;
                  engine_->Push(std::move(commands));
                }}),
      sender_([this](worker::StreamId stream, const TargetEvents& events) {
        streams_.Send(stream, events);
      }) {}

void TargetService::Send(worker::StreamId stream, TargetEvents events) {
  sender_.Send(stream, std::move(events));
}

void TargetService::Deliver(worker::Delivery delivery) {
  sender_.Deliver(delivery);
}

grpc::ServerBidiReactor<v1::TargetControl, v1::TargetEvent>*
TargetService::Session(grpc::CallbackServerContext*) {
  return streams_.Open();
}

void TargetService::FinishStreams(const grpc::Status& status) {
  sender_.Drain();
  streams_.FinishAll(status);
}

}  // namespace nacre::target_worker
