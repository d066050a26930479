// How the tokens of each chunk came about, and what the workers did until then:
// for requests with trace_chunks.
//
// Pure: no I/O, no clock, no threads.

#ifndef COORDINATOR_DISPATCH_CHUNK_TRACER_H_
#define COORDINATOR_DISPATCH_CHUNK_TRACER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "coordinator/dispatch/observer.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/fleet/worker_info.h"
#include "speculation/pipeline.h"

namespace nacre::coordinator {

class ChunkTracer {
 public:
  // Of all lanes between two chunks; those after them are left out.
  static constexpr size_t kMaxSpans = 1024;

  // `wants_draft`: a step without a draft is degraded.
  explicit ChunkTracer(bool wants_draft) : wants_draft_(wants_draft) {}

  // Which workers serve it from now on.
  void OnPlaced(const Placement& placement) { placement_ = placement; }
  void OnSpan(WorkerRole role, const SpanRecord& span, int64_t clock_offset_ns);

  // The trace of the chunk of this verdict, with the lanes since the one
  // before.
  //   text_bytes  of each token that the chunk shows
  ChunkTrace Take(const speculation::Verdict& verdict,
                  std::vector<int> text_bytes);
  // What came after the last chunk.
  std::vector<TraceLane> TakeLanes();

 private:
  const bool wants_draft_;
  Placement placement_;
  std::vector<TraceLane> lanes_;
  size_t num_spans_ = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_CHUNK_TRACER_H_
