#include "telemetry/trace_settings.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/listen_address.h"
#include "common/status_macros.h"

namespace nacre::telemetry {
namespace {

constexpr char kServiceName[] = "service.name";

class Variables {
 public:
  explicit Variables(const Environment& environment)
      : environment_(environment) {}

  // An empty value is none, as the specification has it.
  std::string Get(const char* name) const {
    const char* value = environment_(name);
    return value == nullptr ? "" : value;
  }
  // The first of two that is set; `name` becomes its name.
  std::string GetFirst(const char* first, const char* second,
                       const char** name) const {
    *name = Get(first).empty() ? second : first;
    return Get(*name);
  }

 private:
  const Environment& environment_;
};

absl::Status Invalid(const char* name, const std::string& value,
                     absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, " \"", value, "\" ", why));
}

// Collectors are named by URL, of which gRPC wants host and port.
absl::StatusOr<std::string> EndpointOfUrl(const char* name,
                                          const std::string& url) {
  absl::string_view rest = url;
  if (absl::StrContains(rest, '@')) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " holds a user name: collectors are called without"));
  }
  if (absl::StartsWithIgnoreCase(rest, "https://")) {
    return absl::UnimplementedError(absl::StrCat(
        name, " \"", url, "\": TLS to a collector is not in this version"));
  }
  absl::ConsumePrefix(&rest, "http://");
  const std::string endpoint(rest.substr(0, rest.find('/')));
  if (!IsHostPort(endpoint))
    return Invalid(name, url, "is not http://host:port");
  return endpoint;
}

// Empty: no traces.
absl::StatusOr<std::string> EndpointOf(const Variables& variables) {
  if (absl::EqualsIgnoreCase(variables.Get("OTEL_SDK_DISABLED"), "true")) {
    return "";
  }
  const char* name = nullptr;
  const std::string url =
      variables.GetFirst("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                         "OTEL_EXPORTER_OTLP_ENDPOINT", &name);
  const char* exporter_name = "OTEL_TRACES_EXPORTER";
  const std::string exporter = variables.Get(exporter_name);
  if (url.empty() || exporter == "none") return "";
  if (!exporter.empty() && exporter != "otlp") {
    return Invalid(exporter_name, exporter, "is not otlp or none");
  }
  const char* protocol_name = nullptr;
  const std::string protocol =
      variables.GetFirst("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
                         "OTEL_EXPORTER_OTLP_PROTOCOL", &protocol_name);
  if (!protocol.empty() && protocol != "grpc") {
    return absl::UnimplementedError(absl::StrCat(
        protocol_name, " \"", protocol, "\": only grpc is in this version"));
  }
  return EndpointOfUrl(name, url);
}

absl::Status ReadSampler(const Variables& variables, TraceSettings* settings) {
  const char* name = "OTEL_TRACES_SAMPLER";
  const std::string value = variables.Get(name);
  if (value.empty()) return absl::OkStatus();
  absl::string_view sampler = value;
  settings->client_decides = absl::ConsumePrefix(&sampler, "parentbased_");
  if (sampler == "always_on") {
    settings->sample_ratio = 1.0;
  } else if (sampler == "always_off") {
    settings->sample_ratio = 0.0;
  } else if (sampler == "traceidratio") {
    const char* argument_name = "OTEL_TRACES_SAMPLER_ARG";
    const std::string argument = variables.Get(argument_name);
    if (!argument.empty() &&
        !(absl::SimpleAtod(argument, &settings->sample_ratio) &&
          settings->sample_ratio >= 0 && settings->sample_ratio <= 1)) {
      return Invalid(argument_name, argument, "is not in [0, 1]");
    }
  } else {
    return Invalid(name, value,
                   "is not always_on, always_off or traceidratio, with "
                   "parentbased_ before it or without");
  }
  return absl::OkStatus();
}

// "%2C" is a comma. False where what follows a % is no hexadecimal number.
bool DecodePercent(absl::string_view text, std::string* decoded) {
  decoded->clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded->push_back(text[i]);
      continue;
    }
    int byte = 0;
    if (i + 2 >= text.size() || !absl::ascii_isxdigit(text[i + 1]) ||
        !absl::ascii_isxdigit(text[i + 2]) ||
        !absl::SimpleHexAtoi(text.substr(i + 1, 2), &byte)) {
      return false;
    }
    decoded->push_back(static_cast<char>(byte));
    i += 2;
  }
  return true;
}

absl::Status ReadResource(const Variables& variables, TraceSettings* settings) {
  const char* name = "OTEL_RESOURCE_ATTRIBUTES";
  const std::string list = variables.Get(name);
  for (absl::string_view entry :
       absl::StrSplit(list, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    const std::string key(absl::StripAsciiWhitespace(parts.first));
    std::string value;
    if (key.empty() || !absl::StrContains(entry, '=') ||
        !DecodePercent(absl::StripAsciiWhitespace(parts.second), &value)) {
      return Invalid(name, list, "is not key=value,key=value");
    }
    if (key == kServiceName) {
      settings->service_name = std::move(value);
    } else {
      settings->resource_attributes.emplace_back(key, std::move(value));
    }
  }
  if (std::string service = variables.Get("OTEL_SERVICE_NAME");
      !service.empty()) {
    settings->service_name = std::move(service);
  }
  return absl::OkStatus();
}

// What the flags leave open.
absl::Status ReadEnvironment(const Variables& variables,
                             const TraceFlags& flags, TraceSettings* settings) {
  if (settings->endpoint.empty()) {
    NACRE_ASSIGN_OR_RETURN(settings->endpoint, EndpointOf(variables));
  }
  if (settings->endpoint.empty()) return absl::OkStatus();
  if (!flags.sample_ratio.has_value()) {
    NACRE_RETURN_IF_ERROR(ReadSampler(variables, settings));
  }
  return ReadResource(variables, settings);
}

}  // namespace

absl::StatusOr<TraceSettings> ResolveTraceSettings(
    const TraceFlags& flags, const std::string& default_service_name,
    const Environment& environment) {
  if (!flags.endpoint.empty() && !IsHostPort(flags.endpoint)) {
    return Invalid("--otlp-endpoint", flags.endpoint, "is not host:port");
  }
  // Also false for NaN.
  if (flags.sample_ratio.has_value() &&
      !(*flags.sample_ratio >= 0 && *flags.sample_ratio <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--otlp-sample-ratio ", *flags.sample_ratio, " is not in [0, 1]"));
  }
  TraceSettings settings;
  settings.endpoint = flags.endpoint;
  settings.service_name = default_service_name;
  settings.sample_ratio = flags.sample_ratio.value_or(1.0);
  const absl::Status status =
      ReadEnvironment(Variables(environment), flags, &settings);
  if (!status.ok()) {
    if (!flags.endpoint.empty()) return status;
    settings.endpoint.clear();
    settings.problem = std::string(status.message());
  }
  return settings;
}

}  // namespace nacre::telemetry
