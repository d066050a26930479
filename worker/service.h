// What the process needs of a worker's gRPC service beside gRPC itself.

#ifndef WORKER_SERVICE_H_
#define WORKER_SERVICE_H_

#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/status.h>

namespace nacre::worker {

class SessionService {
 public:
  virtual ~SessionService() = default;

  virtual grpc::Service* grpc_service() = 0;
  // Ends the Session streams once what was sent is written.
  virtual void FinishStreams(const grpc::Status& status) = 0;
};

}  // namespace nacre::worker

#endif  // WORKER_SERVICE_H_
