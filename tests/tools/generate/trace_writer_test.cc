#include "tools/generate/trace_writer.h"

#include <gtest/gtest.h>

#include "common/files.h"
#include "common/json.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::tools {
namespace {

v1::Span* AddSpan(v1::TraceLane* lane, v1::Span::Kind kind, uint64_t start_ns,
                  uint64_t duration_ns) {
  v1::Span* span = lane->add_spans();
  span->set_session_id(7);
  span->set_kind(kind);
  span->set_start_ns(start_ns);
  span->set_duration_ns(duration_ns);
  return span;
}

// The draft's clock is 1 ms ahead of the coordinator's, the target's 2 ms
// behind.
v1::Complete TwoLanes() {
  v1::Complete complete;
  v1::TraceLane* target = complete.add_trace();
  target->set_role(v1::WORKER_ROLE_TARGET);
  target->set_address("t:1");
  target->set_clock_offset_ns(-2000000);
  v1::Span* verify = AddSpan(target, v1::Span::KIND_VERIFY, 500000, 250500);
  verify->set_rows(4);
  verify->set_batch_rows(6);
  verify->set_matched(2);
  verify->set_accepted(3);
  verify->set_length(12);
  AddSpan(target, v1::Span::KIND_UNSPECIFIED, 1, 1);
  v1::TraceLane* draft = complete.add_trace();
  draft->set_role(v1::WORKER_ROLE_DRAFT);
  draft->set_address("d:\"1\"");
  draft->set_clock_offset_ns(1000000);
  AddSpan(draft, v1::Span::KIND_ROLLBACK, 3800001, 0)->set_length(9);
  AddSpan(draft, v1::Span::KIND_DRAFT, 3000000, 100000)->set_rows(1);
  return complete;
}

TEST(TraceJsonTest, MatchesGolden) {
  EXPECT_EQ(TraceJson(TwoLanes().trace()),
            R"({"displayTimeUnit":"ms","traceEvents":[)"
            R"({"ph":"M","name":"process_name","pid":1,"tid":1,)"
            R"("args":{"name":"target t:1"}},)"
            R"({"ph":"M","name":"process_name","pid":2,"tid":1,)"
            R"("args":{"name":"draft d:\"1\""}},)"
            R"({"name":"draft","cat":"nacre","ph":"X","ts":0.0,"dur":100.0,)"
            R"("pid":2,"tid":1,"args":{"session":7,"rows":1,"batch_rows":0,)"
            R"("matched":0,"accepted":0,"length":0}},)"
            R"({"name":"verify","cat":"nacre","ph":"X","ts":500.0,"dur":250.5,)"
            R"("pid":1,"tid":1,"args":{"session":7,"rows":4,"batch_rows":6,)"
            R"("matched":2,"accepted":3,"length":12}},)"
            R"({"name":"rollback","cat":"nacre","ph":"i","s":"t","ts":800.001,)"
            R"("pid":2,"tid":1,"args":{"session":7,"rows":0,"batch_rows":0,)"
            R"("matched":0,"accepted":0,"length":9}}]})");
}

TEST(TraceJsonTest, NamesEveryKind) {
  v1::Complete complete;
  v1::TraceLane* lane = complete.add_trace();
  const v1::Span::Kind kinds[] = {
      v1::Span::KIND_PREFILL,      v1::Span::KIND_DRAFT,
      v1::Span::KIND_VERIFY,       v1::Span::KIND_WAIT_DRAFT_TOKENS,
      v1::Span::KIND_WAIT_VERDICT, v1::Span::KIND_WAIT_ACKNOWLEDGE,
      v1::Span::KIND_ROLLBACK,     v1::Span::KIND_HIDDEN};
  uint64_t start = 10;
  for (const v1::Span::Kind kind : kinds) AddSpan(lane, kind, start++, 1);
  const auto trace = nlohmann::json::parse(TraceJson(complete.trace()));
  std::vector<std::string> names;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "M") names.push_back(event["name"]);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "prefill", "draft", "verify", "wait_draft_tokens",
                "wait_verdict", "wait_acknowledge", "rollback", "hidden"}));
}

TEST(TraceJsonTest, AWaitSaysThatItFollowsAMiss) {
  v1::Complete complete;
  v1::TraceLane* lane = complete.add_trace();
  AddSpan(lane, v1::Span::KIND_WAIT_DRAFT_TOKENS, 10, 5);
  AddSpan(lane, v1::Span::KIND_WAIT_DRAFT_TOKENS, 20, 5)->set_after_miss(true);
  const auto trace = nlohmann::json::parse(TraceJson(complete.trace()));
  EXPECT_FALSE(trace["traceEvents"][1]["args"].contains("after_miss"));
  EXPECT_EQ(trace["traceEvents"][2]["args"]["after_miss"], true);
}

// They come while the draft does something else: beside its lane.
TEST(TraceJsonTest, HiddenStatesHaveARowOfTheirOwn) {
  v1::Complete complete;
  v1::TraceLane* lane = complete.add_trace();
  AddSpan(lane, v1::Span::KIND_DRAFT, 10, 5);
  AddSpan(lane, v1::Span::KIND_HIDDEN, 12, 5)->set_bytes(96);
  const auto trace = nlohmann::json::parse(TraceJson(complete.trace()));
  EXPECT_EQ(trace["traceEvents"][1]["tid"], 1);
  EXPECT_FALSE(trace["traceEvents"][1]["args"].contains("bytes"));
  EXPECT_EQ(trace["traceEvents"][2]["tid"], 2);
  EXPECT_EQ(trace["traceEvents"][2]["args"]["bytes"], 96);
}

TEST(TraceJsonTest, IsWellFormedWithoutSpans) {
  EXPECT_EQ(TraceJson({}), R"({"displayTimeUnit":"ms","traceEvents":[]})");
}

}  // namespace
}  // namespace nacre::tools
