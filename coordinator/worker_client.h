// The coordinator's end of the session stream to one worker. Calls queue up
// until Flush sends them as one message. GrpcWorkerClient implements it; tests
// record the calls.
//
// Called under the dispatcher's lock only; never blocks.

#ifndef COORDINATOR_WORKER_CLIENT_H_
#define COORDINATOR_WORKER_CLIENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/request.h"
#include "coordinator/worker_info.h"
#include "speculation/pipeline.h"

namespace nacre::coordinator {

struct TargetOpening {
  uint64_t session_id = 0;
  const std::vector<int32_t>* token_ids =
      nullptr;  // prompt and what was emitted
  const RequestSpec* request = nullptr;
  speculation::TargetPlan plan;
  uint32_t epoch = 0;
  bool has_draft = false;
  uint64_t hidden_channel = 0;
};

struct DraftOpening {
  uint64_t session_id = 0;
  const std::vector<int32_t>* token_ids = nullptr;
  const RequestSpec* request = nullptr;
  std::vector<int32_t> end_ids;
  int vocab_limit = 0;
  speculation::DraftPlan plan;
  uint32_t epoch = 0;
  // Where it reads its target's hidden states, and as what; 0: nowhere.
  std::string hidden_address = {};
  uint64_t hidden_channel = 0;
};

class WorkerClient {
 public:
  virtual ~WorkerClient() = default;

  // To a target.
  virtual void OpenTarget(const TargetOpening& opening) = 0;
  virtual void RelayTail(uint64_t session_id,
                         const speculation::Tail& tail) = 0;
  virtual void UpdateTarget(uint64_t session_id,
                            const speculation::TargetPlan& plan) = 0;
  virtual void AttachDraft(uint64_t session_id, uint32_t epoch,
                           int opened_length) = 0;
  virtual void LoseDraft(uint64_t session_id) = 0;
  virtual void Acknowledge(uint64_t session_id, int committed_length) = 0;

  // To a draft.
  virtual void OpenDraft(const DraftOpening& opening) = 0;
  virtual void RelayCommit(uint64_t session_id,
                           const speculation::Commit& commit) = 0;
  virtual void UpdateDraft(uint64_t session_id,
                           const speculation::DraftPlan& plan) = 0;

  // To both.
  virtual void Close(uint64_t session_id) = 0;
  // All that is open: the worker closes what is not among them. In order with
  // the other calls.
  virtual void Keep(const std::vector<uint64_t>& session_ids) {
    static_cast<void>(session_ids);
  }
  virtual void Flush() = 0;

  // The worker's clock minus ours, estimated; 0 until known.
  virtual int64_t clock_offset_ns() const = 0;

  // A message to the worker and its answer, without any work; 0 until known.
  virtual int64_t round_trip_ns() const { return 0; }
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_WORKER_CLIENT_H_
