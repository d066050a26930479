// Workers' spans as a trace that Perfetto (ui.perfetto.dev) and
// chrome://tracing open: the Chrome trace event format, JSON.

#ifndef TOOLS_GENERATE_TRACE_WRITER_H_
#define TOOLS_GENERATE_TRACE_WRITER_H_

#include <google/protobuf/repeated_field.h>

#include <string>

#include "proto/inference.pb.h"

namespace nacre::tools {

// One process (pid) per lane, named "target host:port" or "draft host:port".
// Spans bear the names of SpanKindName (proto/names.h) and have a duration, but
// "rollback" is an instant. Times are moved onto the coordinator's clock and
// begin at 0, in microseconds; events are sorted by time. Spans of unknown kind
// are left out.
std::string TraceJson(
    const google::protobuf::RepeatedPtrField<v1::TraceLane>& lanes);

}  // namespace nacre::tools

#endif  // TOOLS_GENERATE_TRACE_WRITER_H_
