// Pages of other origins that may use the gateway from a browser (CORS). Off
// unless origins are named: then a browser lets no such page read an answer.
//
// On the thread of the event loop.

#ifndef GATEWAY_CORS_H_
#define GATEWAY_CORS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gateway/http_message.h"

namespace nacre::gateway {

// INVALID_ARGUMENT names the first that is neither "*" nor SCHEME://HOST or
// SCHEME://HOST:PORT, as browsers send it.
absl::Status CheckOrigins(const std::vector<std::string>& origins);

// What an answer says of who may read it. `origin`: of the request; empty: it
// named none, or could not be read.
HttpHeaders CorsHeaders(const std::vector<std::string>& origins,
                        const std::string& origin);

// `inner`, whose answers also say which of the origins may read them, and which
// need not answer the questions that browsers ask first. "*": any.
HttpHandler AllowOrigins(std::vector<std::string> origins, HttpHandler inner);

}  // namespace nacre::gateway

#endif  // GATEWAY_CORS_H_
