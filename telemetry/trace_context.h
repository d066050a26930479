// Ids of traces and spans: read from clients (W3C Trace Context), drawn at
// random, sampled.

#ifndef TELEMETRY_TRACE_CONTEXT_H_
#define TELEMETRY_TRACE_CONTEXT_H_

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "telemetry/span.h"

namespace nacre::telemetry {

// The value of a traceparent header, "00-<32 hex>-<16 hex>-<2 hex>". nullopt
// for anything that the specification calls invalid: it is then as if it was
// not there. Versions above 00 may go on after a further dash.
absl::optional<SpanContext> ParseTraceparent(absl::string_view header);

// Never all zero. Thread-safe.
TraceId NewTraceId();
SpanId NewSpanId();

// Whether a trace of ours is recorded: the same answer everywhere for one id.
// `ratio` in [0, 1].
bool IsSampled(const TraceId& trace_id, double ratio);

}  // namespace nacre::telemetry

#endif  // TELEMETRY_TRACE_CONTEXT_H_
