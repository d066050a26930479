// The kinds of errors of a template, named as Python's and jinja2's are.
//
// Pure functions.

#ifndef CHAT_ERRORS_H_
#define CHAT_ERRORS_H_

#include "absl/status/status.h"
#include "chat/concat.h"

namespace nacre::chat {

// An operation that Python does not define for values of these types.
template <typename... Parts>
absl::Status TypeFault(const Parts&... parts) {
  return absl::InvalidArgumentError(Concat("TypeError: ", parts...));
}

// A value outside what an operation takes: also a division by zero.
template <typename... Parts>
absl::Status ValueFault(const Parts&... parts) {
  return absl::InvalidArgumentError(Concat("ValueError: ", parts...));
}

// The use of an undefined value.
template <typename... Parts>
absl::Status UndefinedFault(const Parts&... parts) {
  return absl::InvalidArgumentError(Concat("UndefinedError: ", parts...));
}

// What the sandbox forbids.
template <typename... Parts>
absl::Status SecurityFault(const Parts&... parts) {
  return absl::InvalidArgumentError(Concat("SecurityError: ", parts...));
}

// Jinja2 allows it, we do not.
template <typename... Parts>
absl::Status Unsupported(const Parts&... parts) {
  return absl::UnimplementedError(Concat(parts...));
}

}  // namespace nacre::chat

#endif  // CHAT_ERRORS_H_
