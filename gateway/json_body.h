// The JSON of a request, read with limits.
//
// Pure functions.

#ifndef GATEWAY_JSON_BODY_H_
#define GATEWAY_JSON_BODY_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/json.h"
#include "common/json_fields.h"
#include "gateway/api_error.h"

namespace nacre::gateway {

// Keeps the order of keys, which chat templates show.
using OrderedJson = nlohmann::ordered_json;

// Of one object.
inline constexpr int kMaxJsonKeys = 1024;
// Of all objects of a body: each key is compared with those before it in its
// object, 64 bytes of it count as one. Eight objects with the most keys pass.
inline constexpr size_t kMaxJsonKeyComparisons = size_t{1} << 22;

// Fills *object from `text`, which must be one JSON object in UTF-8 within
// kMaxJsonDepth and the limits above, in a time that grows with its size. Of
// keys given twice the last counts, as in Python. 400 says the byte where the
// text is wrong, or the limit; *object is then what it was, or the value that
// is no object.
std::optional<ApiError> ParseBody(absl::string_view text, OrderedJson* object);

// The same of a text in a body, `what` in errors. `comparisons` adds up those
// of all texts of the body.
std::optional<ApiError> ParseObject(absl::string_view text,
                                    absl::string_view what, size_t* comparisons,
                                    OrderedJson* object);

// As JSON in one line; bytes that are no UTF-8 become U+FFFD.
std::string Dump(const OrderedJson& json);
// Appends what Dump makes of the text.
void AppendJsonText(absl::string_view text, std::string* json);

}  // namespace nacre::gateway

#endif  // GATEWAY_JSON_BODY_H_
