// What the target engine is told and what it tells (wire/target_messages.h).

#ifndef TARGET_WORKER_TARGET_MESSAGES_H_
#define TARGET_WORKER_TARGET_MESSAGES_H_

#include "wire/target_messages.h"
#include "worker/engine/streams.h"

namespace nacre::target_worker {

using wire::OpenTarget;
using wire::TargetEvents;
// Values straight from a peer: the engine checks them.
using TargetCommands = worker::FromStream<wire::TargetCommands>;

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_TARGET_MESSAGES_H_
