// The coordinator's flags about traces; what they leave open the environment
// says.

#ifndef COORDINATOR_TRACE_FLAGS_H_
#define COORDINATOR_TRACE_FLAGS_H_

#include "absl/status/statusor.h"
#include "telemetry/trace_settings.h"

namespace nacre::coordinator {

// Errors: those of telemetry::ResolveTraceSettings.
absl::StatusOr<telemetry::TraceSettings> TraceSettingsFromFlags();

}  // namespace nacre::coordinator

#endif  // COORDINATOR_TRACE_FLAGS_H_
