// Where traces go and of which requests: flags, then the environment variables
// that OpenTelemetry has for it (docs/metrics.md, "Traces").

#ifndef TELEMETRY_TRACE_SETTINGS_H_
#define TELEMETRY_TRACE_SETTINGS_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"

namespace nacre::telemetry {

struct TraceSettings {
  std::string endpoint;  // host:port of a collector; empty: no traces
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
  std::string endpoint;                 // empty: as the environment says
  absl::optional<double> sample_ratio;  // likewise
};

// The value of a variable; null where there is none.
using Environment = std::function<const char*(const char* name)>;

// Where the endpoint is empty nothing else is looked at. Errors name the flag
// or the variable: INVALID_ARGUMENT (not host:port, a ratio outside [0, 1], an
// unknown sampler, attributes that are not key=value). Where no flag asks for
// traces, what is wrong with a variable (also: another exporter, TLS, another
// protocol than gRPC) is only a `problem`: it may be meant for others.
absl::StatusOr<TraceSettings> ResolveTraceSettings(
    const TraceFlags& flags, const std::string& default_service_name,
    const Environment& environment);

}  // namespace nacre::telemetry

#endif  // TELEMETRY_TRACE_SETTINGS_H_
