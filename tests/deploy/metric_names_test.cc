// The dashboard and the alerts use metrics that exist: their names are looked
// up in what the processes export.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "common/json.h"
#include "coordinator/observe/fleet_metrics.h"
#include "coordinator/observe/observability.h"
#include "gateway/gateway_metrics.h"
#include "telemetry/build_info.h"
#include "telemetry/otlp_exporter.h"
#include "tests/coordinator/byte_tokenizer.h"
#include "worker/engine/engine_metrics.h"
#include "worker/process/coordinator_metrics.h"
#include "worker/tensors/tensor_metrics.h"

namespace nacre {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

void Insert(const std::vector<prometheus::MetricFamily>& families,
            std::set<std::string>* names) {
  for (const prometheus::MetricFamily& family : families) {
    names->insert(family.name);
    if (family.type != prometheus::MetricType::Histogram) continue;
    for (const char* suffix : {"_bucket", "_sum", "_count"}) {
      names->insert(family.name + suffix);
    }
  }
}

std::set<std::string> ExportedNames() {
  std::set<std::string> names;
  const coordinator::MetricsObserver metrics("model");
  Insert(metrics.collectable()->Collect(), &names);
  const coordinator::ByteTokenizer tokenizer;
  coordinator::Dispatcher dispatcher({.tokenizer = &tokenizer});
  coordinator::RegistryService registry(&dispatcher, &tokenizer);
  Insert(coordinator::FleetMetrics(&registry, &dispatcher).Collect(), &names);
  for (const auto role :
       {worker::EngineRole::kDraft, worker::EngineRole::kTarget}) {
    const worker::EngineMetrics engine(
        {role, "worker", 1, [] { return worker::EngineStats(); }});
    Insert(engine.Collect(), &names);
  }
  Insert(worker::TensorMetrics(
             {.worker = "worker",
              .sent = [] { return worker::TensorPublisher::Stats(); },
              .received = [] { return worker::TensorReader::Stats(); },
              .use = [] { return worker::TensorUse(); }})
             .Collect(),
         &names);
  Insert(worker::CoordinatorMetrics("target", "worker").Collect(), &names);
  Insert({telemetry::BuildInfoFamily()}, &names);
  const telemetry::OtlpExporter exporter(
      {.collector = {.endpoint = "127.0.0.1:1"}});
  Insert(exporter.collectable()->Collect(), &names);
  // These begin to exist when something is counted.
  gateway::GatewayMetrics gateway;
  gateway.CountAnswer("/health", 200);
  gateway.CountIgnored("field");
  gateway.CountFurtherCall("retry");
  gateway.SetConnections(/*connections=*/1, /*running=*/1);
  Insert(gateway.collectable()->Collect(), &names);
  return names;
}

std::set<std::string> UsedNames(const std::string& text) {
  const std::string prefix = "nacre_";
  std::set<std::string> names;
  for (size_t at = text.find(prefix); at != std::string::npos;) {
    const size_t end =
        text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_", at);
    const std::string name = text.substr(at, end - at);
    if (name != prefix) names.insert(name);
    at = text.find(prefix, at + prefix.size());
  }
  return names;
}

void ExpectExported(const std::set<std::string>& used) {
  const std::set<std::string> exported = ExportedNames();
  for (const std::string& name : used) {
    EXPECT_TRUE(exported.contains(name)) << name << " is exported by nobody";
  }
}

TEST(MetricNamesTest, TheDashboardUsesMetricsThatExist) {
  const std::string text =
      Read(NACRE_TEST_DATA "/../../deploy/grafana/nacre.json");
  const nlohmann::json dashboard = nlohmann::json::parse(text, nullptr, false);
  ASSERT_FALSE(dashboard.is_discarded());
  std::set<int> ids;
  std::set<std::string> used;
  int num_queries = 0;
  for (const nlohmann::json& panel : dashboard["panels"]) {
    EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second) << panel["title"];
    if (panel["type"] == "row") continue;
    EXPECT_FALSE(panel["targets"].empty()) << panel["title"];
    for (const nlohmann::json& target : panel["targets"]) {
      const auto expression = target["expr"].get<std::string>();
      const std::set<std::string> names = UsedNames(expression);
      EXPECT_FALSE(names.empty()) << expression;
      used.insert(names.begin(), names.end());
      ++num_queries;
    }
  }
  EXPECT_GT(num_queries, 20);
  ExpectExported(used);
}

TEST(MetricNamesTest, TheAlertsUseMetricsThatExist) {
  const std::string text =
      Read(NACRE_TEST_DATA "/../../deploy/prometheus/alerts.yaml");
  const std::set<std::string> used = UsedNames(text);
  EXPECT_GE(used.size(), 8u);
  ExpectExported(used);
}

TEST(MetricNamesTest, TheDocumentsDefineEveryMetric) {
  const std::string text = Read(NACRE_TEST_DATA "/../../docs/metrics.md") +
                           Read(NACRE_TEST_DATA "/../../docs/openai.md");
  const std::set<std::string> defined = UsedNames(text);
  for (const std::string& name : ExportedNames()) {
    std::string base = name;
    for (const char* suffix : {"_bucket", "_sum", "_count"}) {
      const size_t at = base.rfind(suffix);
      if (at != std::string::npos &&
          at + std::string(suffix).size() == base.size()) {
        base.resize(at);
      }
    }
    EXPECT_TRUE(defined.contains(base)) << base << " is in no document";
  }
}

TEST(MetricNamesTest, AnUnknownNameIsNoticed) {
  const std::set<std::string> exported = ExportedNames();
  EXPECT_FALSE(exported.contains("nacre_requests"));
  EXPECT_TRUE(exported.contains("nacre_round_duration_seconds_bucket"));
  EXPECT_TRUE(exported.contains("nacre_http_running"));
}

}  // namespace
}  // namespace nacre
