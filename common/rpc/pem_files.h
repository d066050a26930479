// Checks PEM files before gRPC gets them, which would only fail every
// handshake, in silence.
//
// Thread-safe; reads files.

#ifndef COMMON_RPC_PEM_FILES_H_
#define COMMON_RPC_PEM_FILES_H_

#include <string>

#include "absl/status/status.h"

namespace nacre::rpc {

// That cert_file holds a certificate valid today (its chain may follow) and
// key_file its unencrypted private key. Errors name the file: NOT_FOUND or
// PERMISSION_DENIED (cannot be read), INVALID_ARGUMENT (no PEM, or the two do
// not belong together), FAILED_PRECONDITION (expired, or not valid yet).
absl::Status CheckCertificateAndKey(const std::string& cert_file,
                                    const std::string& key_file);

// That ca_file holds at least one certificate. Errors as above.
absl::Status CheckAuthorities(const std::string& ca_file);

// What is wrong with the permissions of a file that holds a secret: everybody
// may read it, or others than its owner may write it. Empty: nothing, or the
// file cannot be looked at.
std::string PermissionProblem(const std::string& secret_file);

}  // namespace nacre::rpc

#endif  // COMMON_RPC_PEM_FILES_H_
