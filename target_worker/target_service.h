// nacre.v1.TargetWorker over gRPC: decodes and enqueues, nothing else.
//
// Thread-safe. Create the engine with SendTo(service) as its `send`.

#ifndef TARGET_WORKER_TARGET_SERVICE_H_
#define TARGET_WORKER_TARGET_SERVICE_H_

#include "proto/worker.grpc.pb.h"
#include "target_worker/target_engine.h"
#include "target_worker/target_messages.h"
#include "worker/event_sender.h"
#include "worker/service.h"
#include "worker/session_streams.h"

namespace nacre::target_worker {

class TargetService final : public v1::TargetWorker::CallbackService,
                            public worker::SessionService {
 public:
  TargetService();

  // Messages before this are lost: call it before the server starts. The engine
  // outlives the server.
  void set_engine(TargetEngine* engine) { engine_ = engine; }

  // The engine's `send`: another thread writes them.
  void Send(worker::StreamId stream, TargetEvents events);
  // Writes what was sent: of the engine's thread.
  void Deliver(worker::Delivery delivery);

  grpc::ServerBidiReactor<v1::TargetControl, v1::TargetEvent>* Session(
      grpc::CallbackServerContext* context) override;

  grpc::Service* grpc_service() override { return this; }
  void SetAttachment(uint64_t attachment) override {
    streams_.SetAttachment(attachment);
  }
  void FinishStreams(const grpc::Status& status) override;
  void AbandonStreams() override { streams_.Abandon(); }

 private:
  TargetEngine* engine_ = nullptr;
  worker::SessionStreams<v1::TargetControl, v1::TargetEvent> streams_;
  worker::EventSender<TargetEvents> sender_;  // uses streams_
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_TARGET_SERVICE_H_
