// One call to a collector: spans in protobuf over gRPC, compressed and over TLS
// where it is asked for.

#ifndef TELEMETRY_OTLP_CLIENT_H_
#define TELEMETRY_OTLP_CLIENT_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "telemetry/collector.h"
#include "telemetry/span.h"

namespace nacre::telemetry {

// Used by one thread.
class OtlpClient {
 public:
  using Resource = std::map<std::string, std::string>;

  // `resource`: what this process is, service.name among it.
  OtlpClient(Collector collector, Resource resource);
  ~OtlpClient();

  // Blocks until the collector has answered or the deadline. Returns how many
  // spans it has rejected; an error is the call's.
  absl::StatusOr<int64_t> Send(absl::Span<const Span> spans,
                               absl::Time deadline);

 private:
  struct Stub;

  const Collector collector_;
  const Resource resource_;
  const std::unique_ptr<Stub> stub_;
};

}  // namespace nacre::telemetry

#endif  // TELEMETRY_OTLP_CLIENT_H_
