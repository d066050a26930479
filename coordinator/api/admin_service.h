// Operators' view over gRPC (proto/admin.proto).

#ifndef COORDINATOR_API_ADMIN_SERVICE_H_
#define COORDINATOR_API_ADMIN_SERVICE_H_

#include "coordinator/api/authenticator.h"
#include "coordinator/api/registry_service.h"
#include "coordinator/dispatch/dispatcher.h"
#include "proto/admin.grpc.pb.h"

namespace nacre::coordinator {

// Thread-safe. What it is given must outlive it. Without an authenticator it
// serves every caller.
class AdminService final : public v1::Admin::CallbackService {
 public:
  AdminService(Dispatcher* dispatcher, RegistryService* registry,
               const Authenticator* authenticator = nullptr)
      : dispatcher_(dispatcher),
        registry_(registry),
        authenticator_(authenticator != nullptr ? authenticator : &open_) {}

  grpc::ServerUnaryReactor* GetServerInfo(
      grpc::CallbackServerContext* context,
      const v1::GetServerInfoRequest* request,
      v1::ServerInfo* response) override;
  grpc::ServerUnaryReactor* ListWorkers(
      grpc::CallbackServerContext* context,
      const v1::ListWorkersRequest* request,
      v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* ListSessions(
      grpc::CallbackServerContext* context,
      const v1::ListSessionsRequest* request,
      v1::ListSessionsResponse* response) override;
  grpc::ServerUnaryReactor* DrainWorker(
      grpc::CallbackServerContext* context,
      const v1::DrainWorkerRequest* request,
      v1::DrainWorkerResponse* response) override;

 private:
  Dispatcher* const dispatcher_;
  RegistryService* const registry_;
  const Authenticator open_;
  const Authenticator* const authenticator_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_ADMIN_SERVICE_H_
