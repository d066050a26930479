// The coordinators, their workers and sessions as JSON, for GET /nacre/fleet
// (docs/openai.md).
//
// Pure functions.

#ifndef GATEWAY_FLEET_CONVERT_H_
#define GATEWAY_FLEET_CONVERT_H_

#include <optional>
#include <vector>

#include "gateway/api_error.h"
#include "gateway/fleet_client.h"
#include "gateway/json_body.h"

namespace nacre::gateway {

// Of one coordinator; the rest are counted.
inline constexpr int kMaxFleetSessions = 200;

OrderedJson FleetOf(const std::vector<CoordinatorView>& coordinators);

// Where a coordinator refuses the token, nothing is shown of any: 401, or 403
// for the token of a client.
std::optional<ApiError> FleetRefused(
    const std::vector<CoordinatorView>& coordinators);

}  // namespace nacre::gateway

#endif  // GATEWAY_FLEET_CONVERT_H_
