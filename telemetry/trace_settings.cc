#include "telemetry/trace_settings.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"

namespace nacre::telemetry {
namespace {

constexpr char kServiceName[] = "service.name";

absl::Status ReadSampler(const OtelVariables& variables,
                         TraceSettings* settings) {
  const Setting setting = variables.Get("OTEL_TRACES_SAMPLER");
  if (setting.value.empty()) return absl::OkStatus();
  absl::string_view sampler = setting.value;
  settings->client_decides = absl::ConsumePrefix(&sampler, "parentbased_");
  if (sampler == "always_on") {
    settings->sample_ratio = 1.0;
  } else if (sampler == "always_off") {
    settings->sample_ratio = 0.0;
  } else if (sampler == "traceidratio") {
    const Setting argument = variables.Get("OTEL_TRACES_SAMPLER_ARG");
    if (!argument.value.empty() &&
        !(absl::SimpleAtod(argument.value, &settings->sample_ratio) &&
          settings->sample_ratio >= 0 && settings->sample_ratio <= 1)) {
      return argument.Invalid("is not in [0, 1]");
    }
  } else {
    return setting.Invalid(
        "is not always_on, always_off or traceidratio, with parentbased_ "
        "before it or without");
  }
  return absl::OkStatus();
}

absl::Status ReadResource(const OtelVariables& variables,
                          TraceSettings* settings) {
  const Setting list = variables.Get("OTEL_RESOURCE_ATTRIBUTES");
  for (const absl::string_view entry :
       absl::StrSplit(list.value, ',', absl::SkipWhitespace())) {
    auto attribute = ParseKeyValue(entry);
    if (!attribute.has_value()) {
      return list.Invalid("is not key=value,key=value");
    }
    if (attribute->first == kServiceName) {
      settings->service_name = std::move(attribute->second);
    } else {
      settings->resource_attributes.push_back(*std::move(attribute));
    }
  }
  if (Setting service = variables.Get("OTEL_SERVICE_NAME");
      !service.value.empty()) {
    settings->service_name = std::move(service.value);
  }
  return absl::OkStatus();
}

// What the flags leave open.
absl::Status ReadEnvironment(const OtelVariables& variables,
                             const TraceFlags& flags, TraceSettings* settings) {
  NACRE_ASSIGN_OR_RETURN(settings->collector,
                         ResolveCollector(flags.collector, variables));
  if (settings->collector.endpoint.empty()) return absl::OkStatus();
  if (!flags.sample_ratio.has_value()) {
    NACRE_RETURN_IF_ERROR(ReadSampler(variables, settings));
  }
  return ReadResource(variables, settings);
}

}  // namespace

void TraceFlags::Register(FlagSet* flags) {
  flags->Add("otlp-endpoint", "H:P", &collector.endpoint,
             "OTLP collector (gRPC) to send traces to, host:port or "
             "https://host:port; empty: as OTEL_EXPORTER_OTLP_ENDPOINT says, "
             "else off");
  flags->Add("otlp-sample-ratio", "R", &sample_ratio,
             "share of the requests to trace where the client does not say "
             "(default: as OTEL_TRACES_SAMPLER says, else 1)");
  flags->Add("otlp-tls-ca", "FILE", &collector.tls.ca_file,
             "PEM file: authority of the collector's certificate (default: the "
             "system's authorities)");
  flags->Add("otlp-tls-cert", "FILE", &collector.tls.cert_file,
             "PEM file: certificate to show to the collector");
  flags->Add("otlp-tls-key", "FILE", &collector.tls.key_file,
             "PEM file: private key of --otlp-tls-cert");
  flags->Add("otlp-headers-file", "FILE", &collector.headers_file,
             "file with one key=value a line: metadata of every call to the "
             "collector, as a token");
  flags->Add("otlp-compression", "gzip|none", &collector.compression,
             "of what is sent to the collector (default none)");
  flags->Add("otlp-timeout", "DURATION", &collector.timeout,
             "of a call to the collector (default 10s)");
}

absl::StatusOr<TraceSettings> ResolveTraceSettings(
    const TraceFlags& flags, const std::string& default_service_name,
    const Environment& environment) {
  // Also false for NaN.
  if (flags.sample_ratio.has_value() &&
      !(*flags.sample_ratio >= 0 && *flags.sample_ratio <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--otlp-sample-ratio ", *flags.sample_ratio, " is not in [0, 1]"));
  }
  TraceSettings settings;
  settings.service_name = default_service_name;
  settings.sample_ratio = flags.sample_ratio.value_or(1.0);
  const absl::Status status =
      ReadEnvironment(OtelVariables(environment), flags, &settings);
  if (!status.ok()) {
    if (flags.collector.wanted()) return status;
    settings.collector = Collector();
    settings.problem = std::string(status.message());
  }
  return settings;
}

}  // namespace nacre::telemetry
