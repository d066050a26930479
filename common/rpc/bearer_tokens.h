// The tokens that a service accepts, from a file that may change while it runs.
//
// No message of this file holds a token or a part of one.

#ifndef COMMON_RPC_BEARER_TOKENS_H_
#define COMMON_RPC_BEARER_TOKENS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/periodic_thread.h"

namespace nacre::rpc {

struct NamedToken {
  std::string name;  // of its holder; for logs and limits
  std::string token;
};

// One token a line, "NAME:TOKEN" or "TOKEN" (its name is then "token-" and the
// beginning of its SHA-256). Blank lines and those that begin with # do not
// count. INVALID_ARGUMENT with the line's number:
// - a token shorter than 16 bytes or with other characters than a header may
//   hold;
// - an empty name, a token given twice, or no token at all.
absl::StatusOr<std::vector<NamedToken>> ParseTokens(absl::string_view text);

// ParseTokens of a file. NOT_FOUND, PERMISSION_DENIED.
absl::StatusOr<std::vector<NamedToken>> ReadTokens(const std::string& path);

// Thread-safe. Owns a thread that looks at the file; where the new content is
// bad the old tokens stay, which is logged.
class BearerTokens {
 public:
  // Warns where others may read or write the file. Errors: ReadTokens'.
  static absl::StatusOr<std::unique_ptr<BearerTokens>> Load(
      const std::string& path, absl::Duration reload_period = absl::Seconds(1));

  // The name of the token's holder, if it is accepted. Takes the same time
  // whatever token is shown.
  absl::optional<std::string> Find(absl::string_view token) const
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Entry {
    std::string name;
    Digest digest;  // the token itself is not kept
  };

  explicit BearerTokens(std::string path) : path_(std::move(path)) {}
  absl::Status Reload() ABSL_LOCKS_EXCLUDED(mu_);
  // Reads the file where it has changed.
  void Look() ABSL_LOCKS_EXCLUDED(mu_);

  const std::string path_;
  mutable absl::Mutex mu_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mu_);
  // What tells one state of the file from another, of the last look. None yet:
  // the first look reads once more what changed since Load.
  std::array<int64_t, 4> stamp_ = {-1};
  PeriodicThread watcher_;  // the last member: it uses the others
};

}  // namespace nacre::rpc

#endif  // COMMON_RPC_BEARER_TOKENS_H_
