#include "draft_worker/draft_service.h"

#include <utility>

namespace nacre::draft_worker {

DraftService::DraftService()
    : streams_({[this](worker::StreamId stream, wire::DraftCommands message) {
                  engine_->Push({{std::move(message), stream}});
                },
                [this](worker::StreamId stream) {
                  DraftCommands commands;
                  commands.stream = stream;
                  commands.stream_ended = true;
                  engine_->Push(std::move(commands));
                }}),
      sender_([this](worker::StreamId stream, const DraftEvents& events) {
        streams_.Send(stream, events);
      }) {}

void DraftService::Send(worker::StreamId stream, DraftEvents events) {
  sender_.Send(stream, std::move(events));
}

void DraftService::Deliver(worker::Delivery delivery) {
  sender_.Deliver(delivery);
}

grpc::ServerBidiReactor<v1::DraftControl, v1::DraftEvent>*
DraftService::Session(grpc::CallbackServerContext*) {
  return streams_.Open();
}

void DraftService::FinishStreams(const grpc::Status& status) {
  sender_.Drain();
  streams_.FinishAll(status);
}

}  // namespace nacre::draft_worker
