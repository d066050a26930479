// What a coordinator says of its share of a worker's KV cache, as plain values.

#ifndef WIRE_KV_REPORT_H_
#define WIRE_KV_REPORT_H_

#include <cstdint>

namespace nacre::wire {

// See KvReport in proto/worker.proto. Sizes in tokens, at most 2^62.
struct KvReport {
  uint64_t serial = 0;        // of the grant that it keeps to
  int64_t reserved = 0;       // promised to sessions
  int64_t need = 0;           // of the first request that waits for room
  uint64_t need_session = 0;  // that request; 0: none waits
  int64_t wanted = 0;         // of all that wait
  int sessions = 0;           // that run on the worker for the coordinator

  bool operator==(const KvReport&) const = default;
};

}  // namespace nacre::wire

#endif  // WIRE_KV_REPORT_H_
