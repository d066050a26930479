// The calls of gRPC that a client has begun and that have not ended: so that it
// can cancel them and wait for their end.
//
// Thread-safe.

#ifndef GATEWAY_RUNNING_CALLS_H_
#define GATEWAY_RUNNING_CALLS_H_

#include <grpcpp/client_context.h>

#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace nacre::gateway {

// Shows the coordinator a bearer token; empty: none.
inline void AddToken(const std::string& token, grpc::ClientContext* context) {
  if (token.empty()) return;
  context->AddMetadata("authorization", absl::StrCat("Bearer ", token));
}

class RunningCalls {
 public:
  // False where the client is going: no call may start.
  bool Begin(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (closed_) return false;
    running_.insert(context);
    return true;
  }
  // Last of all: `context` may go after it.
  void End(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    running_.erase(context);
  }

  // Cancels what runs and waits for its end. No call begins any more.
  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return running_.empty();
    };
    absl::MutexLock lock(&mu_);
    closed_ = true;
    for (grpc::ClientContext* context : running_) context->TryCancel();
    mu_.Await(absl::Condition(&none));
  }
  bool closed() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return closed_;
  }

 private:
  mutable absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::set<grpc::ClientContext*> running_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::gateway

#endif  // GATEWAY_RUNNING_CALLS_H_
