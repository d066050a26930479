// The times of steps by rows, as reports in JSON show them.

#ifndef TOOLS_STEP_TIMES_JSON_H_
#define TOOLS_STEP_TIMES_JSON_H_

#include "common/json.h"
#include "common/step_times.h"

namespace nacre::tools {

// [{"rows": 1, "ms": 30.0}, ...].
inline nlohmann::ordered_json StepsJson(const StepTimes& times) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const StepTimes::Point& point : times.points()) {
    array.push_back({{"rows", point.rows}, {"ms", point.ns * 1e-6}});
  }
  return array;
}

}  // namespace nacre::tools

#endif  // TOOLS_STEP_TIMES_JSON_H_
