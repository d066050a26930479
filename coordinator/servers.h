// The coordinator's three ports: clients (Inference), workers (Registry) and
// operators (Admin) meet on none of them. So each can be reached from where it
// must and from nowhere else.

#ifndef COORDINATOR_SERVERS_H_
#define COORDINATOR_SERVERS_H_

#include <grpcpp/server.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/server.h"

namespace nacre::coordinator {

// Thread-safe.
class CoordinatorServers {
 public:
  // Where a service is served; it must outlive the servers.
  struct Port {
    rpc::RpcServer::Options options;
    grpc::Service* service = nullptr;
  };
  struct Ports {
    Port inference;
    Port registry;
    Port admin;
  };

  // Inference comes last: where its address file is, the others are. The
  // registry takes messages of RegistryService::kMaxMessageBytes.
  // Errors: those of RpcServer::Start.
  static absl::StatusOr<std::unique_ptr<CoordinatorServers>> Start(
      const Ports& ports);

  const rpc::RpcServer& inference() const { return *inference_; }
  const rpc::RpcServer& registry() const { return *registry_; }
  const rpc::RpcServer& admin() const { return *admin_; }

  // As RpcServer's, on every port.
  void SetServing(const std::string& service, bool serving);
  void Shutdown(absl::Duration grace);

 private:
  CoordinatorServers() = default;

  std::unique_ptr<rpc::RpcServer> admin_;
  std::unique_ptr<rpc::RpcServer> registry_;
  std::unique_ptr<rpc::RpcServer> inference_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_SERVERS_H_
