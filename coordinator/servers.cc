#include "coordinator/servers.h"

#include "absl/memory/memory.h"
#include "common/status_macros.h"
#include "coordinator/api/registry_service.h"

namespace nacre::coordinator {

absl::StatusOr<std::unique_ptr<CoordinatorServers>> CoordinatorServers::Start(
    const Ports& ports) {
  auto servers = absl::WrapUnique(new CoordinatorServers);
  NACRE_ASSIGN_OR_RETURN(
      servers->admin_,
      rpc::RpcServer::Start(ports.admin.options, {ports.admin.service}));
  rpc::RpcServer::Options registry = ports.registry.options;
  registry.max_request_bytes = RegistryService::kMaxMessageBytes;
  NACRE_ASSIGN_OR_RETURN(
      servers->registry_,
      rpc::RpcServer::Start(registry, {ports.registry.service}));
  NACRE_ASSIGN_OR_RETURN(servers->inference_,
                         rpc::RpcServer::Start(ports.inference.options,
                                               {ports.inference.service}));
  return servers;
}

void CoordinatorServers::SetServing(const std::string& service, bool serving) {
  for (rpc::RpcServer* server :
       {inference_.get(), registry_.get(), admin_.get()}) {
    server->SetServing(service, serving);
  }
}

void CoordinatorServers::Shutdown(absl::Duration grace) {
  for (rpc::RpcServer* server :
       {inference_.get(), registry_.get(), admin_.get()}) {
    server->Shutdown(grace);
  }
}

}  // namespace nacre::coordinator
