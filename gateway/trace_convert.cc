#include "gateway/trace_convert.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "proto/names.h"

namespace nacre::gateway {
namespace {

// Milliseconds with three digits: more are noise of clocks.
double ToMilliseconds(double nanoseconds) {
  return std::round(nanoseconds / 1e3) / 1e3;
}

// Times on the coordinator's clock.
OrderedJson LanesOf(
    const google::protobuf::RepeatedPtrField<v1::TraceLane>& lanes) {
  OrderedJson all = OrderedJson::array();
  for (const v1::TraceLane& lane : lanes) {
    OrderedJson spans = OrderedJson::array();
    for (const v1::Span& span : lane.spans()) {
      const double start = static_cast<double>(span.start_ns()) -
                           static_cast<double>(lane.clock_offset_ns());
      spans.push_back(
          {{"kind", std::string(SpanKindName(span.kind()))},
           {"start_ms", ToMilliseconds(start)},
           {"ms", ToMilliseconds(static_cast<double>(span.duration_ns()))},
           {"rows", span.rows()},
           {"sessions", span.batch_sessions()}});
    }
    all.push_back(
        {{"role", lane.role() == v1::WORKER_ROLE_DRAFT ? "draft" : "target"},
         {"address", lane.address()},
         {"spans", std::move(spans)}});
  }
  return all;
}

}  // namespace

OrderedJson TraceOf(const v1::Chunk& chunk) {
  const v1::ChunkTrace& trace = chunk.trace();
  OrderedJson tokens = OrderedJson::array();
  size_t at = 0;
  const int count = std::min(trace.origins_size(), trace.text_bytes_size());
  for (int i = 0; i < count; ++i) {
    const size_t bytes = trace.text_bytes(i);
    at = std::min(at, chunk.text().size());
    tokens.push_back({{"text", chunk.text().substr(at, bytes)},
                      {"origin", TokenOriginName(trace.origins(i))}});
    at += bytes;
  }
  return {{"tokens", std::move(tokens)},  {"window", trace.window()},
          {"verified", trace.verified()}, {"accepted", trace.accepted()},
          {"degraded", trace.degraded()}, {"lanes", LanesOf(trace.lanes())}};
}

OrderedJson TraceOf(const v1::Complete& complete) {
  return {{"lanes", LanesOf(complete.trace())}};
}

}  // namespace nacre::gateway
