// Session streams as an engine sees them: numbers, and what came on one.
//
// Plain values.

#ifndef WORKER_ENGINE_STREAMS_H_
#define WORKER_ENGINE_STREAMS_H_

#include <cstdint>
#include <utility>

namespace nacre::worker {

// One coordinator's stream, numbered by the service.
using StreamId = uint64_t;
// Names a session on this worker: ids are unique on their stream only.
using SessionKey = std::pair<StreamId, uint64_t>;

// A message (wire::TargetCommands or wire::DraftCommands), or the stream's end.
template <typename Commands>
struct FromStream : Commands {
  StreamId stream = 0;
  bool stream_ended = false;  // closes all sessions of the stream
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_STREAMS_H_
