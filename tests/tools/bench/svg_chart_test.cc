#include "tools/bench/svg_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nacre::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// How often `part` is in `text`.
int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

TEST(SvgChartTest, EscapesWhatHtmlReads) {
  EXPECT_EQ(EscapeHtml("a<b> & \"c\" 'd'"),
            "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  EXPECT_THAT(BarChart({{"<script>", "sd", 1.0, "1 < 2", {}, {}}}, "a&b", {}),
              Not(HasSubstr("<script>")));
}

TEST(SvgChartTest, TicksAreRoundAndNotTooMany) {
  EXPECT_DOUBLE_EQ(NiceStep(1.0, 8), 0.2);
  EXPECT_DOUBLE_EQ(NiceStep(1.6, 8), 0.2);
  EXPECT_DOUBLE_EQ(NiceStep(99.0, 8), 20.0);
  EXPECT_DOUBLE_EQ(NiceStep(0.05, 5), 0.01);
  EXPECT_DOUBLE_EQ(NiceStep(0.0, 5), 1.0);
  for (double top = 1e-3; top < 1e5; top *= 1.37) {
    EXPECT_LE(top / NiceStep(top, 8), 8.0 + 1e-9) << top;
    EXPECT_GE(top / NiceStep(top, 8), 3.0) << top;
  }
}

TEST(SvgChartTest, BarsAreInProportionAndMarksAreDrawn) {
  const std::string svg = BarChart(
      {{"a", "ar", 1.0, "1.00", {}, {}}, {"b", "sd", 2.0, "2.00", 1.5, 2.5}},
      "speed-up", 1.0);
  // 415 pixels are the bound's 2.5.
  EXPECT_THAT(svg, HasSubstr("class=\"ar\" x=\"215.0\""));
  EXPECT_THAT(svg, HasSubstr("width=\"166.00\""));
  EXPECT_THAT(svg, HasSubstr("width=\"332.00\""));
  EXPECT_EQ(Count(svg, "class=\"mark\""), 1);
  EXPECT_EQ(Count(svg, "class=\"bound\""), 1);
  EXPECT_EQ(Count(svg, "class=\"base\""), 1);
  EXPECT_THAT(svg, HasSubstr(">2.00</text>"));
  EXPECT_THAT(svg, HasSubstr(">speed-up</text>"));
}

TEST(SvgChartTest, EmptyAndZeroChartsAreWhole) {
  for (const std::string& svg :
       {BarChart({}, "x", {}),
        BarChart({{"a", "ar", 0.0, "0", {}, {}}}, "x", {}), ShareChart({}),
        HistogramChart({}, "x"),
        HistogramChart({{"a", "sd", {}}, {"b", "sd", {0.0, 0.0}}}, "x"),
        TimelineChart({}, 0.0, 1.0)}) {
    EXPECT_EQ(Count(svg, "<svg"), 1) << svg;
    EXPECT_EQ(Count(svg, "</svg>"), 1) << svg;
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
  }
}

TEST(SvgChartTest, SharesLieBehindEachOther) {
  const std::string svg = ShareChart({{"a", {{"busy", 0.2}, {"wait", 0.8}}}});
  // 525 pixels are 1.
  EXPECT_THAT(svg, HasSubstr("class=\"busy\" x=\"215.0\""));
  EXPECT_THAT(svg, HasSubstr("class=\"wait\" x=\"320.0\""));
  EXPECT_THAT(svg, HasSubstr("80.0 %"));
}

TEST(SvgChartTest, HistogramsHaveOneScale) {
  const std::string svg = HistogramChart(
      {{"a", "sd", {1.0, 3.0}}, {"b", "pearl", {50.0, 50.0}}}, "accepted");
  EXPECT_THAT(svg, HasSubstr("1: 75.0 %"));
  EXPECT_EQ(Count(svg, "0: 50.0 %"), 1);
  // The highest share fills the plot's 70 pixels; the others are of it.
  EXPECT_EQ(Count(svg, "height=\"70.0\""), 1);
  EXPECT_EQ(Count(svg, "height=\"46.7\""), 2);
}

TEST(SvgChartTest, TheTimelineCutsWhatLiesOutside) {
  const std::string svg = TimelineChart({{"target",
                                          {{-5.0, 5.0, "busy", "verify"},
                                           {5.0, 20.0, "wait", "waits"},
                                           {30.0, 40.0, "busy", "gone"}}}},
                                        0.0, 10.0);
  EXPECT_EQ(Count(svg, "width=\"262.50\""), 2);  // of 525
  EXPECT_THAT(svg, HasSubstr("verify, 10.00 ms"));
  EXPECT_THAT(svg, Not(HasSubstr("gone")));
}

}  // namespace
}  // namespace nacre::tools
