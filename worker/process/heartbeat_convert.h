// What an engine has done, as its worker's heartbeats tell it.
//
// Pure functions.

#ifndef WORKER_PROCESS_HEARTBEAT_CONVERT_H_
#define WORKER_PROCESS_HEARTBEAT_CONVERT_H_

#include "proto/worker.pb.h"
#include "worker/engine/engine.h"

namespace nacre::worker {

void FillHeartbeat(const EngineStats& stats, bool draining,
                   v1::Heartbeat* proto);

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_HEARTBEAT_CONVERT_H_
