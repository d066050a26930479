// What the draft engine is told and what it tells (wire/draft_messages.h).

#ifndef DRAFT_WORKER_DRAFT_MESSAGES_H_
#define DRAFT_WORKER_DRAFT_MESSAGES_H_

#include <cstdint>
#include <vector>

#include "wire/draft_messages.h"
#include "worker/engine/streams.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::draft_worker {

using wire::DraftEvents;
using wire::OpenDraft;

// Values straight from a peer: the engine checks them.
struct DraftCommands : worker::FromStream<wire::DraftCommands> {
  // Of no stream: the targets' tensors, and channels that bring no more.
  std::vector<worker::ReceivedTensor> tensors;
  std::vector<uint64_t> tensors_lost;
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_DRAFT_MESSAGES_H_
