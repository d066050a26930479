// nacre.v1.TargetWorker over gRPC.

#ifndef TARGET_WORKER_TARGET_SERVICE_H_
#define TARGET_WORKER_TARGET_SERVICE_H_

#include "proto/worker.grpc.pb.h"
#include "target_worker/target_engine.h"
#include "worker/process/engine_service.h"

namespace nacre::target_worker {

using TargetService = worker::EngineService<v1::TargetWorker, v1::TargetControl,
                                            v1::TargetEvent, TargetEngine>;

}  // namespace nacre::target_worker

// Compiled once, in target_service.cc.
extern template class nacre::worker::EngineService<
    nacre::v1::TargetWorker, nacre::v1::TargetControl, nacre::v1::TargetEvent,
    nacre::target_worker::TargetEngine>;

#endif  // TARGET_WORKER_TARGET_SERVICE_H_
