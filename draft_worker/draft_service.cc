#include "draft_worker/draft_service.h"

template class nacre::worker::EngineService<
    nacre::v1::DraftWorker, nacre::v1::DraftControl, nacre::v1::DraftEvent,
    nacre::draft_worker::DraftEngine>;
