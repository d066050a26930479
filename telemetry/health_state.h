// What a process says of its health to probes over HTTP
// (metrics_server.h): the same as grpc.health.v1 says, and why.

#ifndef TELEMETRY_HEALTH_STATE_H_
#define TELEMETRY_HEALTH_STATE_H_

#include <string>

namespace nacre::telemetry {

struct HealthState {
  bool live = false;
  bool ready = false;
  // Why it is not, or what it lacks although it is; may be empty.
  std::string note;
};

}  // namespace nacre::telemetry

#endif  // TELEMETRY_HEALTH_STATE_H_
