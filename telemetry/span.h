// A span of a trace and where it belongs, before it becomes protobuf.
//
// Plain values. Times: nanoseconds since the Unix epoch.

#ifndef TELEMETRY_SPAN_H_
#define TELEMETRY_SPAN_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace nacre::telemetry {

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;  // all zero: none

// What a parent hands down (W3C Trace Context).
struct SpanContext {
  TraceId trace_id{};
  SpanId span_id{};
  bool sampled = false;
};

using AttributeValue =
    std::variant<std::string, int64_t, double, bool, std::vector<std::string>>;

// To a span that is no parent, of this trace or another.
struct SpanLink {
  TraceId trace_id{};
  SpanId span_id{};
  const char* kind = "";  // what it is to this one; a literal
};

struct Span {
  TraceId trace_id{};
  SpanId span_id{};
  SpanId parent_id{};
  std::string trace_state;
  std::string name;
  bool server = false;  // answers another process; internal otherwise
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::vector<std::pair<std::string, AttributeValue>> attributes;
  std::vector<SpanLink> links;
  int dropped_links = 0;  // there were too many
  bool error = false;
  std::string error_message;
};

}  // namespace nacre::telemetry

#endif  // TELEMETRY_SPAN_H_
