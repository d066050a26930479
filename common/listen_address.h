// Where a server listens, as flags say it, and the file that tells others which
// port it got.

#ifndef COMMON_LISTEN_ADDRESS_H_
#define COMMON_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/status.h"

namespace nacre {

// Whether `address` is host:port with a port in [0, 65535].
bool IsHostPort(const std::string& address);

// Writes `address` and a newline; readers never see half of it.
// PERMISSION_DENIED with the system's reason.
absl::Status WriteAddressFile(const std::string& path,
                              const std::string& address);

}  // namespace nacre

#endif  // COMMON_LISTEN_ADDRESS_H_
