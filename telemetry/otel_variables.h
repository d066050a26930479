// The environment variables of OpenTelemetry and the forms that their values
// have. Only those are read that platforms set for every service
// (docs/metrics.md, "Traces"); the rest of the exporter's settings are flags.
//
// Pure functions of what the environment says.

#ifndef TELEMETRY_OTEL_VARIABLES_H_
#define TELEMETRY_OTEL_VARIABLES_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace nacre::telemetry {

// The value of a variable; null where there is none.
using Environment = std::function<const char*(const char* name)>;

// A value and the variable or flag that it comes from. Empty: not set.
struct Setting {
  std::string name;
  std::string value;

  absl::Status Invalid(absl::string_view why) const;
};

class OtelVariables {
 public:
  // The environment must outlive this.
  explicit OtelVariables(const Environment& environment)
      : environment_(environment) {}

  // An empty value is none, as the specification has it.
  Setting Get(const std::string& name) const;

 private:
  const Environment& environment_;
};

// An entry of a list as OTEL_RESOURCE_ATTRIBUTES and the exporter's headers
// have it: "key=value", spaces around either left out, %XX in the value
// decoded. nullopt for anything else.
absl::optional<std::pair<std::string, std::string>> ParseKeyValue(
    absl::string_view entry);

}  // namespace nacre::telemetry

#endif  // TELEMETRY_OTEL_VARIABLES_H_
