#include "telemetry/trace_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

namespace nacre::telemetry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Variables = std::map<std::string, std::string>;

absl::StatusOr<TraceSettings> ResolveTraces(const Variables& variables,
                                            const TraceFlags& flags = {}) {
  return ResolveTraceSettings(flags, "nacre-test", [&](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

TraceSettings ResolvedTraces(const Variables& variables,
                             const TraceFlags& flags = {}) {
  const auto settings = ResolveTraces(variables, flags);
  EXPECT_TRUE(settings.ok()) << settings.status();
  return settings.value_or(TraceSettings());
}

CollectorFlags FlagsTo(const std::string& endpoint) {
  CollectorFlags flags;
  flags.endpoint = endpoint;
  return flags;
}

constexpr char kEndpointVariable[] = "OTEL_EXPORTER_OTLP_ENDPOINT";

TEST(TraceSettingsTest, WithoutAnythingThereAreNoTraces) {
  const TraceSettings settings = ResolvedTraces({});
  EXPECT_EQ(settings.collector.endpoint, "");
  EXPECT_EQ(settings.problem, "");
  EXPECT_EQ(settings.service_name, "nacre-test");
  EXPECT_EQ(ResolvedTraces({{kEndpointVariable, ""}}).collector.endpoint, "");
  // What is of no use is not read.
  EXPECT_EQ(ResolvedTraces({{"OTEL_TRACES_SAMPLER", "nonsense"},
                            {"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"},
                            {"OTEL_RESOURCE_ATTRIBUTES", "nonsense"}})
                .problem,
            "");
}

TEST(TraceSettingsTest, TheEndpointIsAUrl) {
  for (const char* url :
       {"http://collector:4317", "http://collector:4317/", "collector:4317",
        "http://collector:4317/v1/traces"}) {
    EXPECT_EQ(ResolvedTraces({{kEndpointVariable, url}}).collector.endpoint,
              "collector:4317")
        << url;
  }
}

TEST(TraceSettingsTest, TheFlagWinsOverTheEnvironment) {
  const Variables variables = {{kEndpointVariable, "https://elsewhere:1"},
                               {"OTEL_SDK_DISABLED", "true"},
                               {"OTEL_TRACES_SAMPLER", "always_off"}};
  TraceSettings settings =
      ResolvedTraces(variables, {FlagsTo("here:4317"), absl::nullopt});
  EXPECT_EQ(settings.collector.endpoint, "here:4317");
  EXPECT_EQ(settings.sample_ratio, 0);
  settings = ResolvedTraces(variables, {FlagsTo("here:4317"), 0.25});
  EXPECT_EQ(settings.sample_ratio, 0.25);
  EXPECT_TRUE(settings.client_decides);
}

TEST(TraceSettingsTest, TheEnvironmentCanTurnItOff) {
  for (const Variables& off : {Variables{{"OTEL_SDK_DISABLED", "True"}},
                               Variables{{"OTEL_TRACES_EXPORTER", "none"}}}) {
    Variables variables = off;
    variables[kEndpointVariable] = "http://collector:4317";
    EXPECT_EQ(ResolvedTraces(variables).collector.endpoint, "");
  }
  EXPECT_EQ(ResolvedTraces({{kEndpointVariable, "c:1"},
                            {"OTEL_SDK_DISABLED", "no"},
                            {"OTEL_TRACES_EXPORTER", "otlp"},
                            {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}})
                .collector.endpoint,
            "c:1");
}

TEST(TraceSettingsTest, SamplersWithAndWithoutTheClientsWord) {
  struct Case {
    const char* sampler;
    const char* argument;
    double ratio;
    bool client_decides;
  };
  for (const Case& each :
       {Case{"", "0.5", 1, true}, Case{"parentbased_always_on", "", 1, true},
        Case{"parentbased_always_off", "", 0, true},
        Case{"parentbased_traceidratio", "0.125", 0.125, true},
        Case{"parentbased_traceidratio", "", 1, true},
        Case{"always_on", "", 1, false}, Case{"always_off", "", 0, false},
        Case{"traceidratio", "0", 0, false}}) {
    const TraceSettings settings =
        ResolvedTraces({{kEndpointVariable, "c:1"},
                        {"OTEL_TRACES_SAMPLER", each.sampler},
                        {"OTEL_TRACES_SAMPLER_ARG", each.argument}});
    EXPECT_EQ(settings.sample_ratio, each.ratio) << each.sampler;
    EXPECT_EQ(settings.client_decides, each.client_decides) << each.sampler;
  }
}

TEST(TraceSettingsTest, NamesTheServiceAndItsResource) {
  TraceSettings settings =
      ResolvedTraces({{kEndpointVariable, "c:1"},
                      {"OTEL_RESOURCE_ATTRIBUTES",
                       " deployment.environment = test ,service.name=listed,"
                       "team=a%2Cb=c,"}});
  EXPECT_EQ(settings.service_name, "listed");
  EXPECT_THAT(settings.resource_attributes,
              ElementsAre(Pair("deployment.environment", "test"),
                          Pair("team", "a,b=c")));
  settings =
      ResolvedTraces({{kEndpointVariable, "c:1"},
                      {"OTEL_SERVICE_NAME", "named"},
                      {"OTEL_RESOURCE_ATTRIBUTES", "service.name=listed"}});
  EXPECT_EQ(settings.service_name, "named");
  EXPECT_THAT(settings.resource_attributes, IsEmpty());
}

TEST(TraceSettingsTest, WhatCannotBeDoneIsSaid) {
  // Alone the variables may be meant for others; with a flag they are not.
  const auto expect_problem = [](Variables variables,
                                 const std::string& words) {
    variables.insert({kEndpointVariable, "c:1"});
    const TraceSettings settings = ResolvedTraces(variables);
    EXPECT_EQ(settings.collector.endpoint, "") << words;
    EXPECT_THAT(settings.problem, HasSubstr(words));
  };
  const auto expect_error = [&](const Variables& variables,
                                const std::string& words) {
    expect_problem(variables, words);
    const absl::Status status =
        ResolveTraces(variables, {FlagsTo("c:1"), absl::nullopt}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << words;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  };
  expect_problem({{kEndpointVariable, "http://collector"}},
                 "OTEL_EXPORTER_OTLP_ENDPOINT \"http://collector\"");
  expect_problem({{kEndpointVariable, "c:99999"}}, "is not http://host:port");
  expect_problem({{kEndpointVariable, "http://name:word@c:1"}},
                 "OTEL_EXPORTER_OTLP_ENDPOINT holds a user name");
  expect_problem({{kEndpointVariable, "https://c:1"},
                  {"OTEL_EXPORTER_OTLP_HEADERS", "nonsense"}},
                 "OTEL_EXPORTER_OTLP_HEADERS: header 1 is not key=value");
  expect_problem({{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}},
                 "OTEL_EXPORTER_OTLP_PROTOCOL \"http/protobuf\"");
  expect_problem({{"OTEL_TRACES_EXPORTER", "zipkin"}},
                 "OTEL_TRACES_EXPORTER \"zipkin\"");
  expect_error({{"OTEL_TRACES_SAMPLER", "jaeger_remote"}},
               "OTEL_TRACES_SAMPLER \"jaeger_remote\"");
  for (const char* ratio : {"2", "-0.1", "nan", "half"}) {
    expect_error({{"OTEL_TRACES_SAMPLER", "traceidratio"},
                  {"OTEL_TRACES_SAMPLER_ARG", ratio}},
                 "is not in [0, 1]");
  }
  for (const char* list : {"key", "=value", "a=1,b", "a=%4", "a=%zz"}) {
    expect_error({{"OTEL_RESOURCE_ATTRIBUTES", list}},
                 "OTEL_RESOURCE_ATTRIBUTES");
  }

  EXPECT_THAT(std::string(ResolveTraces({}, {FlagsTo("4317"), absl::nullopt})
                              .status()
                              .message()),
              HasSubstr("--otlp-endpoint \"4317\" is not host:port"));
  // A flag about the collector of a variable asks for traces too.
  TraceFlags flags;
  flags.collector.compression = "zstd";
  EXPECT_EQ(
      ResolveTraces({{kEndpointVariable, "http://c:1"}}, flags).status().code(),
      absl::StatusCode::kInvalidArgument);
  for (const double ratio : {-0.5, 1.5, std::nan("")}) {
    EXPECT_EQ(ResolveTraces({}, {FlagsTo("c:1"), ratio}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << ratio;
  }
}

}  // namespace
}  // namespace nacre::telemetry
