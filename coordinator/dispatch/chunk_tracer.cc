#include "coordinator/dispatch/chunk_tracer.h"

#include <algorithm>
#include <string>
#include <utility>

namespace nacre::coordinator {
namespace {

TokenOrigin OriginOf(const speculation::Verdict& verdict, int token) {
  if (token >= verdict.matched) return TokenOrigin::kTarget;
  if (token >= verdict.matched - verdict.suffix_accepted) {
    return TokenOrigin::kSuffix;
  }
  const int beside_best_path =
      verdict.suffix_accepted + verdict.branch_accepted;
  return token >= verdict.matched - beside_best_path ? TokenOrigin::kBranch
                                                     : TokenOrigin::kDraft;
}

}  // namespace

void ChunkTracer::OnSpan(WorkerRole role, const SpanRecord& span,
                         int64_t clock_offset_ns) {
  if (num_spans_ == kMaxSpans) return;
  ++num_spans_;
  const std::string& address = role == WorkerRole::kTarget
                                   ? placement_.target_address
                                   : placement_.draft_address;
  auto lane =
      std::find_if(lanes_.begin(), lanes_.end(), [&](const TraceLane& each) {
        return each.role == role && each.address == address;
      });
  if (lane == lanes_.end()) {
    lane = lanes_.insert(lanes_.end(), {role, address, clock_offset_ns, {}});
  }
  lane->spans.push_back(span);
}

ChunkTrace ChunkTracer::Take(const speculation::Verdict& verdict,
                             std::vector<int> text_bytes) {
  ChunkTrace trace;
  for (size_t i = 0; i < text_bytes.size(); ++i) {
    trace.origins.push_back(OriginOf(verdict, static_cast<int>(i)));
  }
  trace.text_bytes = std::move(text_bytes);
  trace.window = verdict.window;
  trace.verified = verdict.verified;
  trace.accepted = verdict.accepted;
  trace.degraded = wants_draft_ && verdict.degraded;
  trace.lanes = TakeLanes();
  return trace;
}

std::vector<TraceLane> ChunkTracer::TakeLanes() {
  num_spans_ = 0;
  return std::exchange(lanes_, {});
}

}  // namespace nacre::coordinator
