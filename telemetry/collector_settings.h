// Which collector to call and how: flags, then the environment variables that
// OpenTelemetry has for it (docs/metrics.md, "Traces").

#ifndef TELEMETRY_COLLECTOR_SETTINGS_H_
#define TELEMETRY_COLLECTOR_SETTINGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/rpc/security.h"
#include "telemetry/collector.h"
#include "telemetry/otel_variables.h"

namespace nacre::telemetry {

// What is empty is left to the environment.
struct CollectorFlags {
  std::string endpoint;      // --otlp-endpoint: host:port or a URL
  rpc::TlsFiles tls;         // --otlp-tls-cert, -key, -ca
  std::string headers_file;  // --otlp-headers-file
  std::string compression;   // --otlp-compression
  absl::optional<absl::Duration> timeout;  // --otlp-timeout

  bool wanted() const {
    return !endpoint.empty() || !tls.empty() || !headers_file.empty() ||
           !compression.empty() || timeout.has_value();
  }
};

// The endpoint stays empty if no collector is named; nothing else is
// looked at then. https is TLS and http is none. Without a scheme the endpoint
// of the variable means TLS, that of the flag does if a file for it is named.
//
// Errors name the flag or the variable, never a header. Besides those of
// common/rpc/pem_files.h:
// - INVALID_ARGUMENT: not host:port, a certificate without its key, TLS files
//   by flag for a plaintext endpoint. Headers that are not key=value or that
//   gRPC cannot send, a timeout outside [1 ms, 60 s], another compression than
//   gzip.
// - UNIMPLEMENTED: another protocol than gRPC.
absl::StatusOr<Collector> ResolveCollector(const CollectorFlags& flags,
                                           const OtelVariables& variables);

}  // namespace nacre::telemetry

#endif  // TELEMETRY_COLLECTOR_SETTINGS_H_
