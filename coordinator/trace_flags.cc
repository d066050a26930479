#include "coordinator/trace_flags.h"

#include <cstdlib>
#include <string>

#include "absl/flags/flag.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"

ABSL_FLAG(std::string, otlp_endpoint, "",
          "host:port of an OTLP collector (gRPC) to send traces to, or "
          "https://host:port; empty: as OTEL_EXPORTER_OTLP_ENDPOINT says, else "
          "off");
ABSL_FLAG(absl::optional<double>, otlp_sample_ratio, absl::nullopt,
          "share of the requests to trace where the client does not say; "
          "empty: as OTEL_TRACES_SAMPLER says, else 1");
ABSL_FLAG(std::string, otlp_tls_ca, "",
          "PEM file: who signs the collector's certificate (default: the "
          "system's authorities)");
ABSL_FLAG(std::string, otlp_tls_cert, "",
          "PEM file: certificate to show to the collector");
ABSL_FLAG(std::string, otlp_tls_key, "",
          "PEM file: private key of --otlp-tls-cert");
ABSL_FLAG(std::string, otlp_headers_file, "",
          "file with one key=value a line: metadata of every call to the "
          "collector, as a token");
ABSL_FLAG(std::string, otlp_compression, "", "gzip or none (default)");
ABSL_FLAG(absl::optional<absl::Duration>, otlp_timeout, absl::nullopt,
          "of a call to the collector; default 10s");

namespace nacre::coordinator {

absl::StatusOr<telemetry::TraceSettings> TraceSettingsFromFlags() {
  telemetry::TraceFlags flags;
  flags.collector.endpoint = absl::GetFlag(FLAGS_otlp_endpoint);
  flags.collector.tls = {absl::GetFlag(FLAGS_otlp_tls_cert),
                         absl::GetFlag(FLAGS_otlp_tls_key),
                         absl::GetFlag(FLAGS_otlp_tls_ca)};
  flags.collector.headers_file = absl::GetFlag(FLAGS_otlp_headers_file);
  flags.collector.compression = absl::GetFlag(FLAGS_otlp_compression);
  flags.collector.timeout = absl::GetFlag(FLAGS_otlp_timeout);
  flags.sample_ratio = absl::GetFlag(FLAGS_otlp_sample_ratio);
  return telemetry::ResolveTraceSettings(
      flags, "nacre-coordinator",
      [](const char* name) { return std::getenv(name); });
}

}  // namespace nacre::coordinator
