// The coordinator's end of the session stream to one worker. Calls queue up;
// Cut makes one message of those since the last Cut, Flush sends the messages.
// GrpcWorkerClient implements it; tests record the calls.
//
// The dispatcher calls it under its lock, so it neither builds nor writes
// anything there; but for Flush, which it calls without, from several threads.

#ifndef COORDINATOR_WORKER_CLIENT_H_
#define COORDINATOR_WORKER_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/request.h"
#include "coordinator/worker_info.h"
#include "speculation/pipeline.h"

namespace nacre::coordinator {

inline std::vector<int32_t> Join(const RequestSpec& request,
                                 const std::vector<int32_t>& generated) {
  std::vector<int32_t> ids = request.prompt_ids;
  ids.insert(ids.end(), generated.begin(), generated.end());
  return ids;
}

struct TargetOpening {
  // Prompt and what was committed behind it.
  std::vector<int32_t> token_ids() const { return Join(*request, generated); }

  uint64_t session_id = 0;
  std::shared_ptr<const RequestSpec> request;
  std::vector<int32_t> generated;
  speculation::TargetPlan plan;
  uint32_t epoch = 0;
  bool has_draft = false;
  uint64_t hidden_channel = 0;
};

struct DraftOpening {
  std::vector<int32_t> token_ids() const { return Join(*request, generated); }

  uint64_t session_id = 0;
  std::shared_ptr<const RequestSpec> request;
  std::vector<int32_t> generated;
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
  // What follows goes in a later message: of one, a worker applies openings
  // before all else and closes last.
  virtual void Cut() = 0;
  // Sends the messages that were cut, in order, also those of other threads; or
  // leaves them to the thread that is at it.
  virtual void Flush() = 0;

  // Any thread, at any time:
  //
  // The worker's clock minus ours, estimated; 0 until known.
  virtual int64_t clock_offset_ns() const = 0;

  // A message to the worker and its answer, without any work; 0 until known.
  virtual int64_t round_trip_ns() const { return 0; }
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_WORKER_CLIENT_H_
