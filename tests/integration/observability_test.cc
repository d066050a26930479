// What the real processes tell while they work: traces that say what the
// answers say, with a collector, a dying one and a dead one; logs that machines
// can read and that keep what was said to themselves.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/json.h"
#include "tests/integration/call.h"
#include "tests/integration/processes.h"
#include "tests/integration/streams.h"
#include "tests/integration/traces.h"
#include "tests/telemetry/fake_collector.h"
#include "tests/testing/certificates.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::integration {
namespace {

using telemetry::FakeCollector;
using telemetry::ResourceOf;
using telemetry::Sum;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kSecretPrompt[] = "def very_private_name(zyxprompt):";
constexpr char kSecretStop[] = "zyxstop-zyxstop";
constexpr char kToken[] = "zyxtoken-0123456789abcdef";
constexpr char kWrongToken[] = "zyxwrong-0123456789abcdef";

const std::map<v1::Method, std::string>& MethodNames() {
  static const auto& names =
      *new std::map<v1::Method, std::string>{{v1::METHOD_AR, "ar"},
                                             {v1::METHOD_SD, "sd"},
                                             {v1::METHOD_PEARL, "pearl"},
                                             {v1::METHOD_ASYNC, "async"}};
  return names;
}

v1::GenerateRequest LongRequest(v1::Method method, int max_tokens) {
  v1::GenerateRequest request = Request(kSecretPrompt, method, max_tokens);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_stop()->add_stop(kSecretStop);
  request.mutable_output()->set_spec_stats(v1::SPEC_STATS_LEVEL_DETAILED);
  return request;
}

std::string TraceId(int i) { return absl::StrFormat("%032x", 0xabc00 + i); }
std::string ParentId(int i) { return absl::StrFormat("%016x", 0xdef00 + i); }
std::string Traceparent(int i, const char* flags) {
  return absl::StrCat("00-", TraceId(i), "-", ParentId(i), "-", flags);
}

// --------------------------------------------------------------------- traces

TEST(TracesTest, TellWhatTheAnswersTell) {
  FakeCollector collector;
  Processes processes(
      {.coordinator = {"--otlp-endpoint", collector.address()}});
  ASSERT_NO_FATAL_FAILURE(processes.StartWorkers());
  const std::string target = processes.WorkerAddress("target");
  const std::string draft = processes.WorkerAddress("draft");

  std::vector<TracedRequest> traced;
  for (const auto& [method, name] : MethodNames()) {
    const int i = static_cast<int>(traced.size());
    TracedRequest each;
    each.method = name;
    each.request = LongRequest(method, 48);
    // A name of the client's and one of the server's.
    if (i % 2 == 0) each.request.set_request_id(absl::StrCat("mine-", i));
    each.request.mutable_output()->set_stream(i % 2 == 0);
    each.parent_id = ParentId(i);
    each.trace_state = absl::StrCat("vendor=", i);
    each.target = target;
    each.server = processes.address();
    if (method != v1::METHOD_AR) each.draft = draft;
    each.answer = Call(processes.address(), each.request,
                       {{"traceparent", Traceparent(i, "01")},
                        {"tracestate", each.trace_state}});
    ASSERT_TRUE(each.answer.status.ok()) << each.answer.status.error_message();
    EXPECT_NE(each.answer.request_id(), "");
    if (i % 2 == 0) {
      EXPECT_EQ(each.answer.request_id(), each.request.request_id());
    }
    traced.push_back(std::move(each));
  }
  // One whose client wants no trace, and one whose client does not say.
  constexpr int kUnsampled = 90;
  EXPECT_TRUE(Call(processes.address(), LongRequest(v1::METHOD_SD, 8),
                   {{"traceparent", Traceparent(kUnsampled, "00")}})
                  .status.ok());
  TracedRequest alone = traced.back();
  alone.parent_id = alone.trace_state = "";
  alone.request.set_request_id("alone");
  alone.answer = Call(processes.address(), alone.request);
  ASSERT_TRUE(alone.answer.status.ok()) << alone.answer.status.error_message();
  processes.Stop();

  const Spans spans = collector.spans();
  for (size_t i = 0; i < traced.size(); ++i) {
    SCOPED_TRACE(traced[i].method);
    CheckTrace(OfTrace(spans, TraceId(static_cast<int>(i))), traced[i]);
  }
  EXPECT_TRUE(OfTrace(spans, TraceId(kUnsampled)).empty());
  std::string id_of_alone;
  std::set<std::string> names;
  for (const auto& span : spans) {
    names.insert(span.name());
    if (telemetry::AttributeText(span, "nacre.request.id") == "alone") {
      id_of_alone = absl::BytesToHexString(span.trace_id());
    }
  }
  CheckTrace(OfTrace(spans, id_of_alone), alone);
  EXPECT_EQ(names, (std::set<std::string>{kRootName, "nacre.draft",
                                          "nacre.place", "nacre.prefill",
                                          "nacre.rollback", "nacre.round",
                                          "nacre.verify", "nacre.wait"}));

  for (const FakeCollector::Request& request : collector.requests()) {
    EXPECT_EQ(ResourceOf(request).at("service.name"), "nacre-coordinator");
    const std::string text = request.SerializeAsString();
    for (const std::string& secret :
         {std::string(kSecretPrompt), std::string(kSecretStop),
          traced[0].answer.complete.text()}) {
      EXPECT_FALSE(HoldsPartOf(text, secret)) << secret;
    }
  }
}

// One that waits for another, in a service that is told by OpenTelemetry's
// variables where traces go.
TEST(TracesTest, TellOfTheQueueAndFollowTheEnvironment) {
  FakeCollector collector;
  Processes processes(
      {.environment = {absl::StrCat("OTEL_EXPORTER_OTLP_ENDPOINT=http://",
                                    collector.address(), "/"),
                       "OTEL_SERVICE_NAME=pearl-7",
                       "OTEL_RESOURCE_ATTRIBUTES=deployment.environment=test",
                       "OTEL_TRACES_SAMPLER=parentbased_always_off"},
       // The target is about to be still for a while.
       .coordinator = {"--max-running", "1", "--worker-timeout", "10m"}});
  ASSERT_NO_FATAL_FAILURE(processes.StartWorkers());
  const auto await = [&processes](const char* gauge) {
    ASSERT_TRUE(Service::Eventually(
        [&] { return Sum(processes.Scrape("coordinator"), gauge) == 1; }));
  };

  TracedRequest second;
  second.method = "pearl";
  second.request = LongRequest(v1::METHOD_PEARL, 16);
  second.parent_id = ParentId(1);
  second.server = processes.address();
  second.target = processes.WorkerAddress("target");
  second.draft = processes.WorkerAddress("draft");
  second.queue_position = 0;
  processes.Signal("target", SIGSTOP);
  Answer first;
  std::thread first_call([&] {
    first = Call(processes.address(), LongRequest(v1::METHOD_AR, 16));
  });
  await("nacre_num_requests_running");
  std::thread second_call([&] {
    second.answer = Call(processes.address(), second.request,
                         {{"traceparent", Traceparent(1, "01")}});
  });
  await("nacre_num_requests_waiting");
  processes.Signal("target", SIGCONT);
  first_call.join();
  second_call.join();
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  ASSERT_TRUE(second.answer.status.ok())
      << second.answer.status.error_message();
  EXPECT_EQ(Ids(first.complete), Ids(second.answer.complete));
  processes.Stop();

  // The first one's client did not say, and the environment says no.
  const Spans spans = collector.spans();
  EXPECT_EQ(Named(spans, kRootName).size(), 1u);
  CheckTrace(spans, second);
  for (const FakeCollector::Request& request : collector.requests()) {
    const auto resource = ResourceOf(request);
    EXPECT_EQ(resource.at("service.name"), "pearl-7");
    EXPECT_EQ(resource.at("deployment.environment"), "test");
    EXPECT_EQ(resource.count("service.version"), 1u);
  }
}

// Over TLS, compressed, with a token that is in no log.
TEST(TracesTest, GoOverTlsWithHeaders) {
  const tools::TemporaryFolder folder;
  const nacre::testing::Authority authority("authority");
  const rpc::TlsFiles files = authority.Issue(folder.path(), "collector");
  const auto credentials = rpc::LoadServerTls(files, "--test");
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  FakeCollector collector(*credentials);
  Processes processes(
      {.environment = {absl::StrCat("OTEL_EXPORTER_OTLP_ENDPOINT=https://",
                                    collector.address()),
                       "NACRE_OTLP_TLS_CA=" + files.ca_file,
                       "NACRE_OTLP_TLS_CERT=" + files.cert_file,
                       "NACRE_OTLP_TLS_KEY=" + files.key_file,
                       absl::StrCat("OTEL_EXPORTER_OTLP_HEADERS=Authorization="
                                    "Bearer%20",
                                    kToken),
                       "NACRE_OTLP_COMPRESSION=gzip"},
       .common = {"--log-level", "trace"}});
  ASSERT_NO_FATAL_FAILURE(processes.StartWorkers());
  const std::string metrics = processes.MetricsAddress("coordinator");
  EXPECT_THAT(telemetry::HttpGet(metrics, "/liveness"),
              ::testing::StartsWith("HTTP/1.1 200 "));
  ASSERT_TRUE(Service::Eventually([&] {
    return absl::EndsWith(telemetry::HttpGet(metrics, "/readiness"),
                          "\r\n\r\nok\n");
  }));
  for (const char* worker : {"target", "draft"}) {
    EXPECT_THAT(
        telemetry::HttpGet(processes.MetricsAddress(worker), "/readiness"),
        ::testing::StartsWith("HTTP/1.1 200 "));
  }
  const Answer answer =
      Call(processes.address(), LongRequest(v1::METHOD_ASYNC, 16));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  processes.Stop();
  EXPECT_EQ(Named(collector.spans(), kRootName).size(), 1u);
  const auto metadata = collector.metadata();
  ASSERT_GT(metadata.count("authorization"), 0u);
  EXPECT_EQ(metadata.find("authorization")->second,
            absl::StrCat("Bearer ", kToken));
  const std::string log = processes.Log("coordinator");
  EXPECT_THAT(log, HasSubstr(absl::StrCat("traces to ", collector.address(),
                                          " (TLS)")));
  EXPECT_FALSE(HoldsPartOf(log, kToken));
}

// The collector dies, or was never there. The log says so once, and no answer
// changes.
enum class Collector { kDies, kNeverThere };

class DeadCollectorTest : public ::testing::TestWithParam<Collector> {};

TEST_P(DeadCollectorTest, IsMentionedOnceAndHarmsNobody) {
  auto collector = std::make_unique<FakeCollector>();
  const std::string endpoint = collector->address();
  if (GetParam() == Collector::kNeverThere) collector.reset();
  Processes processes({.coordinator = {"--otlp-endpoint", endpoint}});
  ASSERT_NO_FATAL_FAILURE(processes.StartWorkers());
  const v1::GenerateRequest request = LongRequest(v1::METHOD_ASYNC, 200);
  const Answer before = Call(processes.address(), request);
  ASSERT_TRUE(before.status.ok()) << before.status.error_message();
  if (collector != nullptr) {
    EXPECT_TRUE(collector->AwaitSpans(1));
    collector.reset();
  }
  // More than two batches' worth: each was tried.
  const auto dropped = [&processes] {
    return Sum(processes.Scrape("coordinator"),
               "nacre_otlp_dropped_spans_total", "export_failed");
  };
  ASSERT_TRUE(Service::Eventually([&] {
    const Answer answer = Call(processes.address(), request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(Ids(answer.complete), Ids(before.complete));
    return dropped() > 2 * 512 || ::testing::Test::HasFailure();
  }));
  processes.Stop();
  const std::vector<std::string> parts =
      absl::StrSplit(processes.Log("coordinator"),
                     absl::StrCat("traces do not reach ", endpoint));
  EXPECT_EQ(parts.size(), 2u) << processes.Log("coordinator");
}

INSTANTIATE_TEST_SUITE_P(All, DeadCollectorTest,
                         ::testing::Values(Collector::kDies,
                                           Collector::kNeverThere),
                         [](const auto& info) {
                           return info.param == Collector::kDies ? "Dies"
                                                                 : "NeverThere";
                         });

// ----------------------------------------------------------------------- logs

class LogsTest : public ::testing::Test {
 protected:
  using Lines = std::vector<Json>;

  LogsTest() {
    std::ofstream(folder_.path() + "/tokens") << "alice:" << kToken << "\n";
    processes_ = std::make_unique<Processes>(Processes::Options{
        .common = {"--log-format", "json", "--log-level", "debug"},
        .coordinator = {"--auth-tokens-file", folder_.path() + "/tokens"}});
  }

  Answer Ask(const v1::GenerateRequest& request,
             const std::string& token = kToken, bool cancel = false) {
    return Call(processes_->address(), request,
                {{"authorization", "Bearer " + token}}, cancel);
  }

  // Every line of a process: JSON with what every line has, and plain values.
  Lines ReadLog(const std::string& name, const std::string& program) {
    Lines lines;
    const std::string log = processes_->Log(name);
    for (const auto text : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
      Json line = Json::parse(text.begin(), text.end(), nullptr, false);
      EXPECT_TRUE(line.is_object()) << text;
      if (!line.is_object()) continue;
      for (const char* key : {"time", "level", "process", "message"}) {
        EXPECT_TRUE(line.contains(key) && line[key].is_string()) << text;
      }
      EXPECT_EQ(line["process"], program) << text;
      EXPECT_EQ(line["time"].get<std::string>().back(), 'Z') << text;
      for (const auto& [key, value] : line.items()) {
        EXPECT_TRUE(value.is_primitive()) << text;
        if (value.is_string()) values_.push_back(value.get<std::string>());
      }
      lines.push_back(std::move(line));
    }
    EXPECT_FALSE(lines.empty()) << name;
    return lines;
  }

  static Lines About(const Lines& lines, const std::string& message,
                     const std::string& request_id) {
    Lines about;
    for (const Json& line : lines) {
      if (line["message"] == message && line["request_id"] == request_id) {
        about.push_back(line);
      }
    }
    return about;
  }

  const tools::TemporaryFolder folder_;
  std::unique_ptr<Processes> processes_;
  std::vector<std::string> values_;  // all strings in the logs that were read
};

TEST_F(LogsTest, AreForMachinesNameTheRequestAndKeepSecrets) {
  ASSERT_NO_FATAL_FAILURE(processes_->StartWorkers());
  std::map<std::string, TracedRequest> answered;
  std::vector<std::string> secrets = {kSecretPrompt, kSecretStop, kToken,
                                      kWrongToken, "zyxmodel"};
  for (const auto& [method, name] : MethodNames()) {
    TracedRequest each;
    each.method = name;
    each.request = LongRequest(method, 32);
    if (method != v1::METHOD_SD) {
      each.request.set_request_id(absl::StrCat("mine-", name));
    }
    each.answer = Ask(each.request);
    ASSERT_TRUE(each.answer.status.ok()) << each.answer.status.error_message();
    if (method != v1::METHOD_SD) {
      EXPECT_EQ(each.answer.request_id(), each.request.request_id());
    }
    secrets.push_back(each.answer.complete.text());
    answered[each.answer.request_id()] = each;
  }
  ASSERT_EQ(answered.size(), MethodNames().size());

  // And what goes wrong.
  std::map<std::string, std::string> failed;
  const auto fail = [&](const std::string& id, const std::string& status,
                        v1::GenerateRequest request, const char* token,
                        bool cancel = false) {
    request.set_request_id(id);
    EXPECT_FALSE(Ask(request, token, cancel).status.ok()) << id;
    failed[id] = status;
  };
  const v1::GenerateRequest good = LongRequest(v1::METHOD_ASYNC, 1000);
  fail("no-token", "UNAUTHENTICATED", good, kWrongToken);
  // It is refused before its request is read, so its line names none.
  ASSERT_EQ(failed.erase("no-token"), 1u);
  failed[""] = "UNAUTHENTICATED";
  v1::GenerateRequest bad = good;
  bad.mutable_sampling()->set_temperature(-1);
  fail("bad-field", "INVALID_ARGUMENT", bad, kToken);
  bad = good;
  bad.set_model("zyxmodel");
  fail("no-model", "NOT_FOUND", bad, kToken);
  v1::GenerateRequest streamed = good;
  streamed.mutable_output()->set_stream(true);
  fail("cancelled", "CANCELLED", streamed, kToken, /*cancel=*/true);
  processes_->Stop();

  const Lines coordinator = ReadLog("coordinator", "coordinator");
  const Lines target = ReadLog("target", "nacre-target-worker");
  const Lines draft = ReadLog("draft", "nacre-draft-worker");
  for (const Lines& lines : {coordinator, target, draft}) {
    for (const Json& line : lines) {
      const auto message = line["message"].get<std::string>();
      if (message.rfind("request ", 0) != 0 &&
          message.rfind("session ", 0) != 0) {
        continue;
      }
      const std::string id = line.value("request_id", "");
      EXPECT_TRUE(answered.contains(id) || failed.contains(id)) << line;
    }
  }
  for (const auto& [id, each] : answered) {
    SCOPED_TRACE(id);
    const bool drafted = each.method != "ar";
    EXPECT_EQ(About(coordinator, "request started", id).size(), 1u);
    for (const char* message : {"session opened", "session closed"}) {
      EXPECT_EQ(About(target, message, id).size(), 1u) << message;
      EXPECT_EQ(About(draft, message, id).size(), drafted ? 1u : 0u) << message;
    }
    const Lines finished = About(coordinator, "request finished", id);
    ASSERT_EQ(finished.size(), 1u);
    const v1::Complete& complete = each.answer.complete;
    const v1::SpeculationReport& report = complete.speculation();
    const std::map<std::string, uint64_t> numbers = {
        {"prompt_tokens", complete.usage().prompt_tokens()},
        {"cached_tokens", complete.usage().cached_tokens()},
        {"generation_tokens", complete.usage().completion_tokens()},
        {"rounds", report.rounds()},
        {"drafted", report.drafted()},
        {"verified", report.verified()},
        {"accepted", report.accepted()},
        {"degraded_rounds", report.degraded_rounds()}};
    for (const auto& [key, value] : numbers) {
      EXPECT_EQ(finished[0][key], value) << key;
    }
    EXPECT_EQ(finished[0]["method"], each.method);
    EXPECT_EQ(finished[0]["finish_reason"], "length");
    EXPECT_NEAR(finished[0]["total_s"].get<double>(),
                Seconds(complete.timing().total()), 1e-9);
  }
  for (const auto& [id, status] : failed) {
    const Lines lines = About(coordinator, "request failed", id);
    ASSERT_EQ(lines.size(), 1u) << id;
    EXPECT_EQ(lines[0]["status"], status);
  }
  EXPECT_EQ(About(target, "session closed", "cancelled").size(), 1u);

  for (const std::string& secret : secrets) {
    for (const std::string& value : values_) {
      EXPECT_FALSE(HoldsPartOf(value, secret)) << secret << ": " << value;
    }
    for (const char* name : {"coordinator", "target", "draft"}) {
      EXPECT_FALSE(HoldsPartOf(processes_->Log(name), secret)) << secret;
    }
  }
  // No process was asked to trace.
  for (const std::string& value : values_) {
    EXPECT_THAT(value, ::testing::Not(HasSubstr("traces")));
  }
}

}  // namespace
}  // namespace nacre::integration
