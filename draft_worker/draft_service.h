// nacre.v1.DraftWorker over gRPC: decodes and enqueues, nothing else.
//
// Thread-safe.

#ifndef DRAFT_WORKER_DRAFT_SERVICE_H_
#define DRAFT_WORKER_DRAFT_SERVICE_H_

#include "draft_worker/draft_engine.h"
#include "draft_worker/draft_messages.h"
#include "proto/worker.grpc.pb.h"
#include "worker/event_sender.h"
#include "worker/service.h"
#include "worker/session_streams.h"

namespace nacre::draft_worker {

class DraftService final : public v1::DraftWorker::CallbackService,
                           public worker::SessionService {
 public:
  DraftService();

  // Call it before the server starts. The engine outlives the server.
  void set_engine(DraftEngine* engine) { engine_ = engine; }

  // The engine's `send`: another thread writes them.
  void Send(worker::StreamId stream, DraftEvents events);
  // Writes what was sent: of the engine's thread.
  void Deliver(worker::Delivery delivery);

  grpc::ServerBidiReactor<v1::DraftControl, v1::DraftEvent>* Session(
      grpc::CallbackServerContext* context) override;

  grpc::Service* grpc_service() override { return this; }
  void SetAttachment(uint64_t attachment) override {
    streams_.SetAttachment(attachment);
  }
  void FinishStreams(const grpc::Status& status) override;
  void AbandonStreams() override { streams_.Abandon(); }

 private:
  DraftEngine* engine_ = nullptr;
  worker::SessionStreams<v1::DraftControl, v1::DraftEvent> streams_;
  worker::EventSender<DraftEvents> sender_;  // uses streams_
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_DRAFT_SERVICE_H_
