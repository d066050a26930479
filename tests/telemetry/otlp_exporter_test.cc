#include "telemetry/otlp_exporter.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "telemetry/build_info.h"
#include "tests/telemetry/fake_collector.h"
#include "tests/telemetry/samples.h"
#include "tests/testing/certificates.h"
#include "tests/testing/fault_proxy.h"

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
    options.collector.endpoint = collector_.address();
    options.service_name = "nacre-test";
    options.max_delay = absl::Milliseconds(10);
    options.collector.timeout = absl::Seconds(30);
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
  span.links = {{{7}, {8}, "drafted"}};
  span.dropped_links = 3;
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
  ASSERT_EQ(got.links_size(), 1);
  EXPECT_EQ(got.links(0).trace_id(), std::string("\7") + std::string(15, '\0'));
  EXPECT_EQ(got.links(0).span_id(), std::string("\10") + std::string(7, '\0'));
  EXPECT_EQ(got.links(0).attributes(0).key(), "nacre.link");
  EXPECT_EQ(got.links(0).attributes(0).value().string_value(), "drafted");
  EXPECT_EQ(got.dropped_links_count(), 3u);
  EXPECT_EQ(spans[1].links_size(), 0);
  EXPECT_EQ(spans[1].parent_span_id(), "");
  EXPECT_EQ(spans[1].kind(), FakeCollector::Span::SPAN_KIND_INTERNAL);
  EXPECT_FALSE(spans[1].has_status());
}

// Both ends show certificates, and believe no stranger's.
TEST_F(OtlpExporterTest, SpeaksTlsAndShowsItsCertificate) {
  const std::string folder =
      ::testing::TempDir() + "/nacre_otlp_tls_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  const nacre::testing::Authority authority("authority"), stranger("stranger");
  const auto credentials =
      rpc::LoadServerTls(authority.Issue(folder, "collector"), "--test");
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  FakeCollector collector(*credentials);
  const auto send = [&](const rpc::TlsFiles& files, bool tls = true) {
    OtlpExporter::Options options = Options();
    options.collector.endpoint = collector.address();
    if (tls) {
      const auto security = rpc::LoadClientTls({tls, files, ""});
      EXPECT_TRUE(security.ok()) << security.status();
      options.collector.security = security.value_or(rpc::ChannelSecurity());
    }
    std::shared_ptr<prometheus::Collectable> counters;
    {
      OtlpExporter exporter(options);
      counters = exporter.collectable();
      Export(&exporter, {NamedSpan("secured")});
    }
    return telemetry::Sum(Collect(*counters),
                          "nacre_otlp_exported_spans_total");
  };
  const rpc::TlsFiles own = authority.Issue(folder, "own");
  EXPECT_EQ(send(own), 1);
  EXPECT_EQ(collector.spans().size(), 1u);
  EXPECT_EQ(send({"", "", own.ca_file}), 0);
  EXPECT_EQ(send(stranger.Issue(folder, "stranger")), 0);
  EXPECT_EQ(send({}, /*tls=*/false), 0);
  EXPECT_EQ(collector.spans().size(), 1u);
  std::filesystem::remove_all(folder);
}

TEST_F(OtlpExporterTest, HeadersAreTheMetadataOfEveryCall) {
  {
    OtlpExporter::Options options = Options();
    options.collector.headers = {
        {"authorization", "Bearer a,b"}, {"x-tenant", "1"}, {"x-tenant", "2"}};
    options.max_batch_spans = 1;
    OtlpExporter exporter(options);
    Export(&exporter, {NamedSpan("one"), NamedSpan("two")});
  }
  ASSERT_EQ(collector_.requests().size(), 2u);
  const auto metadata = collector_.metadata();
  EXPECT_EQ(metadata.count("authorization"), 2u);
  EXPECT_EQ(metadata.find("authorization")->second, "Bearer a,b");
  EXPECT_EQ(metadata.count("x-tenant"), 4u);
}

// As few bytes on the wire as gzip makes of it, and all of them at the end.
TEST_F(OtlpExporterTest, CompressesWhereItIsAskedTo) {
  const auto bytes_sent = [this](bool gzip) {
    nacre::testing::FaultProxy proxy([this] { return collector_.address(); });
    OtlpExporter::Options options = Options();
    options.collector.endpoint = proxy.address();
    options.collector.gzip = gzip;
    {
      OtlpExporter exporter(options);
      Span span = NamedSpan("long");
      span.attributes = {{"text", std::string(100'000, 'a')}};
      Export(&exporter, {span});
    }
    return proxy.delivered_bytes();
  };
  EXPECT_GT(bytes_sent(false), 100'000);
  EXPECT_LT(bytes_sent(true), 20'000);
  const auto spans = collector_.spans();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(AttributeText(spans[1], "text"), std::string(100'000, 'a'));
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
  // It cannot have rejected more than it got, nor less than none.
  collector_.Answer(grpc::Status::OK, /*rejected_spans=*/100);
  Export(exporter.get(), std::vector<Span>(2, NamedSpan("many")));
  await("export_failed", 7);
  collector_.Answer(grpc::Status::OK, /*rejected_spans=*/-100);
  Export(exporter.get(), std::vector<Span>(3, NamedSpan("few")));
  await("export_failed", 10);
  EXPECT_EQ(Sum(*exporter, "nacre_otlp_dropped_spans_total", "export_failed"),
            6);
  EXPECT_EQ(Sum(*exporter, "nacre_otlp_exported_spans_total"), 4);
}

// Takes calls and never answers.
class SilentCollector final : public opentelemetry::proto::collector::trace::
                                  v1::TraceService::CallbackService {
 public:
  SilentCollector() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~SilentCollector() override {
    server_->Shutdown(std::chrono::system_clock::now());
  }
  grpc::ServerUnaryReactor* Export(grpc::CallbackServerContext*,
                                   const FakeCollector::Request*,
                                   FakeCollector::Response*) override {
    class Reactor final : public grpc::ServerUnaryReactor {
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    ++num_calls;
    return new Reactor;
  }
  const std::string& address() const { return address_; }

  std::atomic<int> num_calls{0};

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// However much is queued: one timeout for the call that is under way, one for
// all the others.
TEST(OtlpExporterAloneTest, ACollectorThatHangsDoesNotHoldUpTheEnd) {
  constexpr int kQueued = 5;
  SilentCollector collector;
  OtlpExporter::Options options;
  options.collector.endpoint = collector.address();
  options.collector.timeout = absl::Milliseconds(500);
  options.max_batch_spans = 1;
  auto exporter = std::make_unique<OtlpExporter>(options);
  const auto counters = exporter->collectable();
  const auto dropped = [&counters](const char* reason) {
    return telemetry::Sum(Collect(*counters), "nacre_otlp_dropped_spans_total",
                          reason);
  };
  absl::Notification busy, go_on;
  exporter->Export(1, [&busy, &go_on] {
    busy.Notify();
    go_on.WaitForNotification();
    return std::vector<Span>{NamedSpan("first")};
  });
  busy.WaitForNotification();
  const auto one = [] { return std::vector<Span>{NamedSpan("lost")}; };
  for (int i = 0; i < kQueued; ++i) exporter->Export(1, one);
  OtlpExporter* const ending = exporter.get();
  std::thread end([&exporter] { exporter.reset(); });
  // It ends with its thread, which is held; from then on it takes no more.
  while (dropped("queue_full") == 0) {
    absl::SleepFor(absl::Milliseconds(1));
    ending->Export(1, one);
  }
  go_on.Notify();
  end.join();
  EXPECT_LE(collector.num_calls, 2);
}

TEST(OtlpExporterAloneTest, WithoutACollectorItEndsAndCounts) {
  OtlpExporter::Options options;
  options.collector.endpoint = "127.0.0.1:1";
  options.collector.timeout = absl::Milliseconds(200);
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
