// Server-sent events as text.
//
// Pure functions.

#ifndef GATEWAY_SSE_H_
#define GATEWAY_SSE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace nacre::gateway {

// One event. Data of several lines has a field for each: an empty line would
// end the event.
std::string SseEvent(absl::string_view data);

// A comment, which readers pass over: it keeps proxies from closing a silent
// connection.
inline constexpr char kSsePing[] = ": ping\n\n";
// Ends a stream of OpenAI's API.
inline constexpr char kSseDone[] = "data: [DONE]\n\n";

}  // namespace nacre::gateway

#endif  // GATEWAY_SSE_H_
