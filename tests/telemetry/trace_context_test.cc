#include "telemetry/trace_context.h"

#include <gtest/gtest.h>

#include <string>

namespace nacre::telemetry {
namespace {

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kSpan[] = "b7ad6b7169203331";

std::string Header(const std::string& version, const std::string& trace,
                   const std::string& span, const std::string& flags) {
  return version + "-" + trace + "-" + span + "-" + flags;
}

TEST(TraceContextTest, ReadsWhatTheSpecificationShows) {
  const auto context = ParseTraceparent(Header("00", kTrace, kSpan, "01"));
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->trace_id[0], 0x0a);
  EXPECT_EQ(context->trace_id[15], 0x9c);
  EXPECT_EQ(context->span_id[0], 0xb7);
  EXPECT_EQ(context->span_id[7], 0x31);
  EXPECT_TRUE(context->sampled);
  EXPECT_FALSE(ParseTraceparent(Header("00", kTrace, kSpan, "00"))->sampled);
  // Flags and versions to come.
  EXPECT_TRUE(ParseTraceparent(Header("00", kTrace, kSpan, "ff"))->sampled);
  EXPECT_TRUE(ParseTraceparent(Header("cc", kTrace, kSpan, "01")));
  EXPECT_TRUE(ParseTraceparent(Header("cc", kTrace, kSpan, "01-what")));
}

TEST(TraceContextTest, IgnoresWhatIsMalformed) {
  const std::string good = Header("00", kTrace, kSpan, "01");
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(ParseTraceparent(good.substr(0, length))) << length;
  }
  for (const std::string& bad :
       {Header("ff", kTrace, kSpan, "01"), good + "-more", good + "x",
        Header("cc", kTrace, kSpan, "01.what"),
        Header("00", std::string(32, '0'), kSpan, "01"),
        Header("00", kTrace, std::string(16, '0'), "01"),
        Header("00", "0AF7651916CD43DD8448EB211C80319C", kSpan, "01"),
        Header("00", kTrace, "b7ad6b716920333g", "01"),
        Header("0_", kTrace, kSpan, "01"), Header("00", kTrace, kSpan, "0x"),
        std::string("00_") + good.substr(3), std::string(55, '-')}) {
    EXPECT_FALSE(ParseTraceparent(bad)) << bad;
  }
}

TEST(TraceContextTest, IdsAreNewAndSampledAtTheRatio) {
  EXPECT_NE(NewTraceId(), NewTraceId());
  EXPECT_NE(NewSpanId(), NewSpanId());
  int sampled = 0;
  constexpr int kTraces = 20000;
  for (int i = 0; i < kTraces; ++i) {
    const TraceId id = NewTraceId();
    EXPECT_TRUE(IsSampled(id, 1.0));
    EXPECT_FALSE(IsSampled(id, 0.0));
    if (IsSampled(id, 0.25)) {
      ++sampled;
      EXPECT_TRUE(IsSampled(id, 0.5));
    }
  }
  // Six standard deviations.
  EXPECT_NEAR(sampled, kTraces / 4, 370);
}

// Services of other makers decide by the same half: a trace is whole or absent.
TEST(TraceContextTest, TheLastHalfOfAnIdDecides) {
  TraceId id{};
  id[0] = 0xff;
  id[8] = 0x3f;
  EXPECT_TRUE(IsSampled(id, 0.25));
  id[0] = 0;
  id[8] = 0x40;
  EXPECT_FALSE(IsSampled(id, 0.25));
}

}  // namespace
}  // namespace nacre::telemetry
