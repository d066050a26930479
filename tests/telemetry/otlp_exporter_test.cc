#include "telemetry/otlp_exporter.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "telemetry/build_info.h"
#include "tests/telemetry/fake_collector.h"
#include "tests/telemetry/samples.h"

namespace nacre::telemetry {
namespace {

Span NamedSpan(const std::string& name) {
  Span span;
  span.trace_id[0] = 1;
  span.span_id[0] = 2;
  span.name = name;
  span.start_ns = 1'000;
  span.end_ns = 2'000;
  return span;
}

double Sum(const OtlpExporter& exporter, const std::string& name,
           const std::string& part = "") {
  return telemetry::Sum(Collect(*exporter.collectable()), name, part);
}

class OtlpExporterTest : public ::testing::Test {
 protected:
  OtlpExporter::Options Options() const {
    OtlpExporter::Options options;
    options.endpoint = collector_.address();
    options.service_name = "nacre-test";
    options.max_delay = absl::Milliseconds(10);
    options.call_timeout = absl::Seconds(30);
    return options;
  }
  static void Export(OtlpExporter* exporter, std::vector<Span> spans) {
    const size_t count = spans.size();
    exporter->Export(count, [spans] { return spans; });
  }

  FakeCollector collector_;
};

TEST_F(OtlpExporterTest, EveryFieldArrives) {
  Span span = NamedSpan("whole");
  span.parent_id[7] = 9;
  span.trace_state = "vendor=1";
  span.server = true;
  span.error = true;
  span.error_message = "why";
  span.attributes = {{"text", "a"},
                     {"number", int64_t{-5}},
                     {"real", 0.5},
                     {"flag", true},
                     {"list", std::vector<std::string>{"x", "y"}}};
  {
    OtlpExporter::Options options = Options();
    options.resource_attributes = {{"team", "blue"}};
    OtlpExporter exporter(options);
    Export(&exporter, {span, NamedSpan("root")});
  }
  const auto requests = collector_.requests();
  ASSERT_EQ(requests.size(), 1u);
  const std::map<std::string, std::string> resource = {
      {"service.name", "nacre-test"},
      {"service.version", GetBuildInfo().version},
      {"team", "blue"}};
  EXPECT_EQ(ResourceOf(requests[0]), resource);
  const auto spans = collector_.spans();
  ASSERT_EQ(spans.size(), 2u);
  const FakeCollector::Span& got = spans[0];
  EXPECT_EQ(got.trace_id(), std::string("\1") + std::string(15, '\0'));
  EXPECT_EQ(got.span_id(), std::string("\2") + std::string(7, '\0'));
  EXPECT_EQ(got.parent_span_id(), std::string(7, '\0') + "\x09");
  EXPECT_EQ(got.trace_state(), "vendor=1");
  EXPECT_EQ(got.name(), "whole");
  EXPECT_EQ(got.kind(), FakeCollector::Span::SPAN_KIND_SERVER);
  EXPECT_EQ(got.start_time_unix_nano(), 1'000u);
  EXPECT_EQ(got.end_time_unix_nano(), 2'000u);
  EXPECT_EQ(AttributeText(got, "text"), "a");
  EXPECT_EQ(AttributeText(got, "number"), "-5");
  EXPECT_EQ(AttributeText(got, "real"), "0.500000");
  EXPECT_EQ(AttributeText(got, "flag"), "true");
  EXPECT_EQ(AttributeText(got, "list"), "x");
  EXPECT_EQ(got.status().code(),
            opentelemetry::proto::trace::v1::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(got.status().message(), "why");
  EXPECT_EQ(spans[1].parent_span_id(), "");
  EXPECT_EQ(spans[1].kind(), FakeCollector::Span::SPAN_KIND_INTERNAL);
  EXPECT_FALSE(spans[1].has_status());
}

TEST_F(OtlpExporterTest, SendsInBatches) {
  OtlpExporter::Options options = Options();
  options.max_batch_spans = 4;
  OtlpExporter exporter(options);
  Export(&exporter, std::vector<Span>(10, NamedSpan("one")));
  ASSERT_TRUE(collector_.AwaitSpans(10));
  for (const auto& request : collector_.requests()) {
    EXPECT_LE(request.resource_spans(0).scope_spans(0).spans_size(), 4);
  }
  EXPECT_EQ(Sum(exporter, "nacre_otlp_dropped_spans_total"), 0);
}

TEST_F(OtlpExporterTest, WhatDoesNotFitIsDroppedAndCounted) {
  OtlpExporter::Options options = Options();
  options.max_queued_spans = 5;
  absl::Notification busy, go_on;
  OtlpExporter exporter(options);
  // Holds the exporter's thread: what comes now must wait in the queue.
  exporter.Export(1, [&busy, &go_on] {
    busy.Notify();
    go_on.WaitForNotification();
    return std::vector<Span>{NamedSpan("first")};
  });
  busy.WaitForNotification();
  Export(&exporter, std::vector<Span>(4, NamedSpan("fits")));
  Export(&exporter, std::vector<Span>(2, NamedSpan("too many")));
  Export(&exporter, std::vector<Span>(1, NamedSpan("fits")));
  exporter.CountDropped(3);
  EXPECT_EQ(Sum(exporter, "nacre_otlp_dropped_spans_total", "queue_full"), 5);
  go_on.Notify();
  ASSERT_TRUE(collector_.AwaitSpans(6));
  for (const FakeCollector::Span& span : collector_.spans()) {
    EXPECT_NE(span.name(), "too many");
  }
}

TEST_F(OtlpExporterTest, WhatTheCollectorRefusesIsCounted) {
  auto exporter = std::make_unique<OtlpExporter>(Options());
  const auto await = [&exporter](const char* part, double count) {
    for (int i = 0; i < 6000; ++i) {
      if (Sum(*exporter, "nacre_otlp_dropped_spans_total", part) +
              Sum(*exporter, "nacre_otlp_exported_spans_total") >=
          count) {
        return;
      }
      absl::SleepFor(absl::Milliseconds(10));
    }
  };
  collector_.Answer(grpc::Status(grpc::StatusCode::UNAVAILABLE, "no"));
  Export(exporter.get(), std::vector<Span>(3, NamedSpan("lost")));
  await("export_failed", 3);
  EXPECT_EQ(Sum(*exporter, "nacre_otlp_dropped_spans_total", "export_failed"),
            3);
  collector_.Answer(grpc::Status::OK, /*rejected_spans=*/1);
  Export(exporter.get(), std::vector<Span>(2, NamedSpan("half")));
  await("export_failed", 5);
  EXPECT_EQ(Sum(*exporter, "nacre_otlp_dropped_spans_total", "export_failed"),
            4);
  EXPECT_EQ(Sum(*exporter, "nacre_otlp_exported_spans_total"), 1);
}

TEST(OtlpExporterAloneTest, WithoutACollectorItEndsAndCounts) {
  OtlpExporter::Options options;
  options.endpoint = "127.0.0.1:1";
  options.call_timeout = absl::Milliseconds(200);
  std::shared_ptr<prometheus::Collectable> counters;
  {
    OtlpExporter exporter(options);
    counters = exporter.collectable();
    EXPECT_EQ(
        telemetry::Sum(Collect(*counters), "nacre_otlp_dropped_spans_total"),
        0);
    exporter.Export(1, [] { return std::vector<Span>{NamedSpan("lost")}; });
  }
  EXPECT_EQ(telemetry::Sum(Collect(*counters), "nacre_otlp_dropped_spans_total",
                           "export_failed"),
            1);
}

}  // namespace
}  // namespace nacre::telemetry
