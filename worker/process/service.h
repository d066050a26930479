// What the process needs of a worker's gRPC service beside gRPC itself.

#ifndef WORKER_PROCESS_SERVICE_H_
#define WORKER_PROCESS_SERVICE_H_

#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/status.h>

#include <cstdint>

namespace nacre::worker {

class SessionService {
 public:
  virtual ~SessionService() = default;

  virtual grpc::Service* grpc_service() = 0;
  // What pings are answered with from now on: shows a coordinator that this is
  // the process that attached (VocabularyRequest.attachment).
  virtual void SetAttachment(uint64_t attachment) = 0;
  // Ends the Session streams once what was sent is written.
  virtual void FinishStreams(const grpc::Status& status) = 0;
  // Nobody follows the Session streams any more: lets the engine close their
  // sessions, also where the other end cannot be reached and the streams
  // themselves take long to end.
  virtual void AbandonStreams() = 0;
};

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_SERVICE_H_
