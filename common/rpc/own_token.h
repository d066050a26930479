// The bearer token that a client shows, from a file that may change while it
// runs.

#ifndef COMMON_RPC_OWN_TOKEN_H_
#define COMMON_RPC_OWN_TOKEN_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/periodic_thread.h"

namespace nacre::rpc {

// Thread-safe. Owns a thread that reads the file; where that fails the old
// token stays, which is logged once.
class OwnToken {
 public:
  // The first token of the file. Warns where others may read or write it.
  // Errors: ReadTokens'.
  static absl::StatusOr<std::unique_ptr<OwnToken>> Load(
      const std::string& path, absl::Duration reload_period = absl::Seconds(1));

  std::string token() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  OwnToken(std::string path, std::string token)
      : path_(std::move(path)), token_(std::move(token)) {}
  void Look() ABSL_LOCKS_EXCLUDED(mu_);

  const std::string path_;
  mutable absl::Mutex mu_;
  std::string token_ ABSL_GUARDED_BY(mu_);
  std::string problem_;     // that was logged; of the watcher
  PeriodicThread watcher_;  // the last member: it uses the others
};

}  // namespace nacre::rpc

#endif  // COMMON_RPC_OWN_TOKEN_H_
