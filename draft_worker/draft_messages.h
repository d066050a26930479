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

// A channel that brings no more, as it was subscribed to in that epoch. A
// request keeps its channel: when it has another target, the loss of the one
// before may be heard of after the session that reads the other one was opened.
struct LostChannel {
  uint64_t channel = 0;
  uint32_t epoch = 0;
};

// Values straight from a peer: the engine checks them.
struct DraftCommands : worker::FromStream<wire::DraftCommands> {
  // Of no stream: the targets' tensors, and channels that bring no more.
  std::vector<worker::ReceivedTensor> tensors;
  std::vector<LostChannel> tensors_lost;
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_DRAFT_MESSAGES_H_
