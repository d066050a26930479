// Asks a coordinator which of its workers are ready.

#ifndef TOOLS_READINESS_H_
#define TOOLS_READINESS_H_

#include <memory>
#include <string>

#include "proto/admin.grpc.pb.h"
#include "proto/inference.grpc.pb.h"
#include "tools/security_flags.h"

namespace nacre::tools {

struct ReadyWorkers {
  int targets = 0;
  int drafts = 0;
  bool model_known = false;  // GetModel answers
};

// Thread-safe.
class ReadinessProbe {
 public:
  // host:port for operators and for clients of a coordinator.
  ReadinessProbe(const std::string& admin_address, const std::string& address,
                 const ClientSecurity& security = {});

  // Blocks for two seconds at most; all zero where the coordinator does not
  // answer.
  ReadyWorkers Count() const;

 private:
  const ClientSecurity security_;
  const std::unique_ptr<v1::Admin::Stub> admin_;
  const std::unique_ptr<v1::Inference::Stub> inference_;
};

}  // namespace nacre::tools

#endif  // TOOLS_READINESS_H_
