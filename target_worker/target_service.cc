#include "target_worker/target_service.h"

template class nacre::worker::EngineService<
    nacre::v1::TargetWorker, nacre::v1::TargetControl, nacre::v1::TargetEvent,
    nacre::target_worker::TargetEngine>;
