// Asks a coordinator which of its workers are ready.

#ifndef TOOLS_CLUSTER_READINESS_H_
#define TOOLS_CLUSTER_READINESS_H_

#include <memory>
#include <string>

#include "proto/admin.grpc.pb.h"
#include "proto/inference.grpc.pb.h"
#include "tools/cluster/security_flags.h"

namespace nacre::tools {

struct ReadyWorkers {
  int targets = 0;
  int drafts = 0;
  bool model_known = false;  // GetModel answers
};

// A port of a coordinator and how it is called.
struct Door {
  std::string address;  // host:port
  ClientSecurity security;
};

// Thread-safe.
class ReadinessProbe {
 public:
  // Of the same coordinator.
  ReadinessProbe(const Door& operators, const Door& clients);

  // Blocks for two seconds at most; all zero where the coordinator does not
  // answer.
  ReadyWorkers Count() const;

 private:
  const ClientSecurity operator_security_;
  const ClientSecurity client_security_;
  const std::unique_ptr<v1::Admin::Stub> admin_;
  const std::unique_ptr<v1::Inference::Stub> inference_;
};

}  // namespace nacre::tools

#endif  // TOOLS_CLUSTER_READINESS_H_
