// nacre.v1.DraftWorker over gRPC.

#ifndef DRAFT_WORKER_DRAFT_SERVICE_H_
#define DRAFT_WORKER_DRAFT_SERVICE_H_

#include "draft_worker/draft_engine.h"
#include "proto/worker.grpc.pb.h"
#include "worker/process/engine_service.h"

namespace nacre::draft_worker {

using DraftService = worker::EngineService<v1::DraftWorker, v1::DraftControl,
                                           v1::DraftEvent, DraftEngine>;

}  // namespace nacre::draft_worker

// Compiled once, in draft_service.cc.
extern template class nacre::worker::EngineService<
    nacre::v1::DraftWorker, nacre::v1::DraftControl, nacre::v1::DraftEvent,
    nacre::draft_worker::DraftEngine>;

#endif  // DRAFT_WORKER_DRAFT_SERVICE_H_
