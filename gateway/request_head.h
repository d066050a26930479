// What the gateway demands of a request's head beyond what the HTTP library
// does. So no proxy in front can read the same bytes as other requests (RFC
// 9112, 11.2).
//
// Pure functions, but for random names.

#ifndef GATEWAY_REQUEST_HEAD_H_
#define GATEWAY_REQUEST_HEAD_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "gateway/api_error.h"
#include "gateway/http_message.h"

namespace nacre::gateway {

// The bytes of a head, its last empty line included. An error: a folded line, a
// line that does not end with CR LF, a control character, no HTTP/1 request
// line.
std::optional<ApiError> CheckHeadBytes(absl::string_view head);

// Its headers, names in lower case. An error:
// - Host missing (HTTP 1.1), given twice or no HOST[:PORT];
// - Content-Length given twice or together with Transfer-Encoding;
// - a Transfer-Encoding other than "chunked", Content-Encoding, an Expect other
//   than "100-continue".
std::optional<ApiError> CheckHeaders(const HttpHeaders& headers,
                                     bool is_http_1_1);

// Sets request->path, by its method, from the target of its first line. That is
// a path, a whole address (http://HOST/PATH), or "*" of OPTIONS. A whole
// address' host stands above Host's: no header chooses what is served here. The
// query is left out. An error: another form, or an address without a HOST or
// HOST:PORT.
std::optional<ApiError> ReadTarget(absl::string_view target,
                                   HttpRequest* request);

// The value of the only Origin among the whole lines of a head that cannot be
// read; else empty.
std::string OriginIn(absl::string_view head);

// Whether any Connection header has "close" among its options: several count as
// one (RFC 9110, 5.3).
bool AsksToClose(const HttpHeaders& headers);

// The first byte of a request: could a method begin with it?
bool CanBeginRequest(char byte);

// Fills *decoded from a part of a path (RFC 3986, 2.1). False: a '%' without
// two hexadecimal digits.
bool PercentDecode(absl::string_view text, std::string* decoded);

// X-Request-Id where it is 1 to 128 visible ASCII characters; else 16 random
// hexadecimal digits after "req-".
std::string RequestIdOf(const HttpRequest& request);
// 16 random hexadecimal digits, for names. Thread-safe.
std::string RandomHex();

}  // namespace nacre::gateway

#endif  // GATEWAY_REQUEST_HEAD_H_
