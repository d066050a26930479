#include "tools/generate/trace_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "proto/names.h"
#include "tools/generate/generation_json.h"

namespace nacre::tools {
namespace {

using Json = nlohmann::ordered_json;

struct PlacedSpan {
  const v1::Span* span;
  int pid;
  int64_t start_ns;  // coordinator's clock
};

std::vector<PlacedSpan> PlaceSpans(
    const google::protobuf::RepeatedPtrField<v1::TraceLane>& lanes) {
  std::vector<PlacedSpan> placed;
  for (int i = 0; i < lanes.size(); ++i) {
    for (const v1::Span& span : lanes[i].spans()) {
      if (SpanKindName(span.kind()) == "unknown") continue;
      placed.push_back(
          {&span, i + 1,
           static_cast<int64_t>(span.start_ns()) - lanes[i].clock_offset_ns()});
    }
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const PlacedSpan& a, const PlacedSpan& b) {
                     return a.start_ns < b.start_ns;
                   });
  return placed;
}

Json LaneName(const v1::TraceLane& lane, int pid) {
  const char* role = lane.role() == v1::WORKER_ROLE_TARGET ? "target" : "draft";
  return {{"ph", "M"},
          {"name", "process_name"},
          {"pid", pid},
          {"tid", 1},
          {"args", {{"name", absl::StrCat(role, " ", lane.address())}}}};
}

Json EventJson(const PlacedSpan& placed, int64_t origin_ns) {
  const v1::Span& span = *placed.span;
  Json args = {{"session", span.session_id()},    {"rows", span.rows()},
               {"batch_rows", span.batch_rows()}, {"matched", span.matched()},
               {"accepted", span.accepted()},     {"length", span.length()}};
  if (span.abandoned()) args["abandoned"] = true;
  if (span.after_miss()) args["after_miss"] = true;
  Json event = {{"name", std::string(SpanKindName(span.kind()))},
                {"cat", "nacre"}};
  const double start_us = (placed.start_ns - origin_ns) / 1000.0;
  if (span.kind() == v1::Span::KIND_ROLLBACK) {
    event.update({{"ph", "i"}, {"s", "t"}, {"ts", start_us}});
  } else {
    event.update({{"ph", "X"},
                  {"ts", start_us},
                  {"dur", static_cast<double>(span.duration_ns()) / 1000.0}});
  }
  // Comes while the worker does something else: in a row of its own.
  const bool beside = span.kind() == v1::Span::KIND_HIDDEN;
  if (beside) args["bytes"] = span.bytes();
  event.update({{"pid", placed.pid},
                {"tid", beside ? 2 : 1},
                {"args", std::move(args)}});
  return event;
}

}  // namespace

std::string TraceJson(
    const google::protobuf::RepeatedPtrField<v1::TraceLane>& lanes) {
  Json events = Json::array();
  for (int i = 0; i < lanes.size(); ++i) {
    events.push_back(LaneName(lanes[i], i + 1));
  }
  const std::vector<PlacedSpan> placed = PlaceSpans(lanes);
  for (const PlacedSpan& span : placed) {
    events.push_back(EventJson(span, placed.front().start_ns));
  }
  const Json trace = {{"displayTimeUnit", "ms"},
                      {"traceEvents", std::move(events)}};
  return JsonText(trace, -1);
}

}  // namespace nacre::tools
