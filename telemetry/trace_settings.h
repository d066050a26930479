// Where traces go and of which requests: flags, then the environment variables
// that OpenTelemetry has for it (docs/metrics.md, "Traces").

#ifndef TELEMETRY_TRACE_SETTINGS_H_
#define TELEMETRY_TRACE_SETTINGS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "common/flag_set.h"
#include "telemetry/collector.h"
#include "telemetry/collector_settings.h"
#include "telemetry/otel_variables.h"

namespace nacre::telemetry {

struct TraceSettings {
  Collector collector;  // its endpoint empty: no traces
  // Why there are none although the environment asks for them; empty: it does
  // not.
  std::string problem;
  std::string service_name;
  // Of the process, beside its name.
  std::vector<std::pair<std::string, std::string>> resource_attributes;
  double sample_ratio = 1.0;  // [0, 1]
  // Whether the ratio is only for requests without a traceparent.
  bool client_decides = true;
};

struct TraceFlags {
  CollectorFlags collector;
  absl::optional<double> sample_ratio;  // empty: as the environment says

  // --otlp-endpoint to --otlp-timeout.
  void Register(FlagSet* flags);
};

// Where the endpoint is empty nothing else is looked at. Errors name the flag
// or the variable: those of ResolveCollector, and INVALID_ARGUMENT (a ratio
// outside [0, 1], an unknown sampler, attributes that are not key=value). Where
// no flag is about the collector, what is wrong with a variable is only a
// `problem`: it may be meant for others.
absl::StatusOr<TraceSettings> ResolveTraceSettings(
    const TraceFlags& flags, const std::string& default_service_name,
    const Environment& environment);

}  // namespace nacre::telemetry

#endif  // TELEMETRY_TRACE_SETTINGS_H_
