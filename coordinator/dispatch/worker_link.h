// The coordinator's end of the session stream to one worker, as its kind of
// worker has it: TargetLink or DraftLink. Calls queue up; Cut makes one message
// of those since the last Cut, Flush sends the messages. stream_link.h
// implements them; tests record the calls.
//
// The dispatcher calls them under its lock, so they neither build nor write
// anything there; but for Flush, which it calls without, from several threads.

#ifndef COORDINATOR_DISPATCH_WORKER_LINK_H_
#define COORDINATOR_DISPATCH_WORKER_LINK_H_

#include <cstdint>
#include <vector>

#include "coordinator/dispatch/openings.h"
#include "speculation/pipeline.h"
#include "wire/kv_report.h"

namespace nacre::coordinator {

// What both have.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;

  virtual void Close(uint64_t session_id) = 0;
  // All that is open: the worker closes what is not among them. In order with
  // the other calls.
  virtual void Keep(const std::vector<uint64_t>& session_ids) = 0;
  // What we have and want of the KV of a worker that grants it.
  virtual void ReportKv(const wire::KvReport& report) = 0;
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
  virtual int64_t round_trip_ns() const = 0;
};

class TargetLink : public virtual WorkerLink {
 public:
  virtual void OpenTarget(const TargetOpening& opening) = 0;
  virtual void RelayTail(uint64_t session_id,
                         const speculation::Tail& tail) = 0;
  virtual void UpdateTarget(uint64_t session_id,
                            const speculation::TargetPlan& plan) = 0;
  virtual void AttachDraft(uint64_t session_id, uint32_t epoch,
                           int opened_length) = 0;
  virtual void LoseDraft(uint64_t session_id) = 0;
  virtual void Acknowledge(uint64_t session_id, int committed_length) = 0;
};

class DraftLink : public virtual WorkerLink {
 public:
  virtual void OpenDraft(const DraftOpening& opening) = 0;
  virtual void RelayCommit(uint64_t session_id,
                           const speculation::Commit& commit) = 0;
  virtual void UpdateDraft(uint64_t session_id,
                           const speculation::DraftPlan& plan) = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_WORKER_LINK_H_
