// What the process needs of a worker's gRPC service beside gRPC itself.

#ifndef WORKER_PROCESS_SERVICE_H_
#define WORKER_PROCESS_SERVICE_H_

#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <functional>

#include "wire/kv_report.h"

namespace nacre::worker {

class SessionService {
 public:
  virtual ~SessionService() = default;

  virtual grpc::Service* grpc_service() = 0;
  // What the coordinator's pings are answered with from now on: shows it that
  // this is the process that attached (VocabularyRequest.attachment).
  virtual void SetAttachment(uint64_t coordinator, uint64_t attachment) = 0;
  // Hears what coordinators say of their share of the KV, on gRPC threads;
  // null: nothing does. A call of the old one has ended when it returns.
  using OnReport =
      std::function<void(uint64_t coordinator, const wire::KvReport& report)>;
  virtual void SetOnReport(OnReport on_report) = 0;
  // How many KeptSessions of the coordinator have been put into the engine's
  // inbox, and how many messages and ends of streams of all coordinators.
  virtual uint64_t kept_lists(uint64_t coordinator) const = 0;
  virtual uint64_t pushed() const = 0;
  // Ends the Session streams once what was sent is written.
  virtual void FinishStreams(const grpc::Status& status) = 0;
  // The coordinator follows its Session streams no more. Lets the engine close
  // their sessions, also where the other end cannot be reached and the streams
  // themselves take long to end.
  virtual void AbandonStreams(uint64_t coordinator) = 0;
};

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_SERVICE_H_
