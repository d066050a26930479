// An OpenTelemetry collector and how it wants to be called.
//
// Plain values.

#ifndef TELEMETRY_COLLECTOR_H_
#define TELEMETRY_COLLECTOR_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/rpc/security.h"

namespace nacre::telemetry {

struct Collector {
  std::string endpoint;           // host:port; empty: none
  rpc::ChannelSecurity security;  // the default is plaintext
  // gRPC metadata of every call, keys in lower case. The values are secrets:
  // never logged, in no error.
  std::vector<std::pair<std::string, std::string>> headers;
  bool gzip = false;
  absl::Duration timeout = absl::Seconds(10);  // of a call
};

}  // namespace nacre::telemetry

#endif  // TELEMETRY_COLLECTOR_H_
