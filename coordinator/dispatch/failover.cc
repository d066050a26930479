#include "coordinator/dispatch/failover.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace nacre::coordinator {
namespace {

// Whether it computes the same bits as the session's first target.
bool IsEqualTarget(const FleetWorker& worker, const FailoverRecord& record) {
  return worker.role == WorkerRole::kTarget &&
         worker.info.fingerprint == record.fingerprint &&
         worker.info.eos_token_ids == record.eos_token_ids &&
         worker.info.numerics_id == record.numerics_id;
}

}  // namespace

bool Failover::CouldGoOn(const FailoverRecord& record, uint64_t id,
                         const FleetWorker& worker) const {
  return worker.ready && IsEqualTarget(worker, record) &&
         fleet_.ledger().CouldHold(id, Placer::TargetNeed(*record.request));
}

bool Failover::HasSoundTarget(const FailoverRecord& record) const {
  return std::any_of(
      fleet_.workers().begin(), fleet_.workers().end(), [&](const auto& entry) {
        const auto& [id, worker] = entry;
        return !record.failed_on.contains(id) && CouldGoOn(record, id, worker);
      });
}

uint64_t Failover::EqualTarget(const FailoverRecord& record,
                               const WorkerIds& except) const {
  WorkerIds others = record.refused_by;
  others.insert(except.begin(), except.end());
  for (const auto& [id, worker] : fleet_.workers()) {
    if (!IsEqualTarget(worker, record)) others.insert(id);
  }
  return placer_.LeastLoaded(WorkerRole::kTarget, *record.request, others);
}

bool Failover::MayGoOn(FailoverRecord* record, uint64_t refuser,
                       const absl::Status& status) const {
  record->refused_by.insert(refuser);
  if (absl::IsInternal(status)) record->failed_on.insert(refuser);
  // It was placed where it was said to have room. So what holds that goes: the
  // session of a lost stream, or what other coordinators were granted.
  if (absl::IsResourceExhausted(status)) return true;
  // The target has forgotten it: another may do, or this one later. Its device
  // has failed: another may do, now or when it has room.
  return absl::IsAborted(status) ||
         (absl::IsInternal(status) && HasSoundTarget(*record));
}

void Failover::Hold(uint64_t session_id, FailoverRecord* record,
                    std::string reason, int64_t now_ns) {
  record->reason = std::move(reason);
  record->give_up_ns = After(now_ns, timeout_ns_);
  held_[session_id] = record;
}

void Failover::HoldRefused(uint64_t session_id, FailoverRecord* record,
                           uint64_t refuser, const absl::Status& status,
                           int64_t now_ns) {
  const int64_t give_up_ns = record->give_up_ns;
  if (!absl::IsResourceExhausted(status)) ++record->num_losses;
  Hold(session_id, record,
       absl::StrCat("target worker ", fleet_.Find(refuser)->info.address,
                    " gave it up: ", status.message()),
       now_ns);
  record->give_up_ns = std::min(record->give_up_ns, give_up_ns);
  record->retry_ns = now_ns + kRetryNs;
  // A last time at the end, however short the timeout.
  if (record->give_up_ns > now_ns) {
    record->retry_ns = std::min(record->retry_ns, record->give_up_ns);
  }
}

std::vector<uint64_t> Failover::held() const {
  std::vector<uint64_t> ids;
  ids.reserve(held_.size());
  for (const auto& [id, record] : held_) ids.push_back(id);
  return ids;
}

Failover::Decision Failover::Decide(uint64_t session_id, int generated,
                                    int64_t now_ns) {
  FailoverRecord& record = *held_.at(session_id);
  Decision decision;
  if (record.num_losses > kMaxLossesInARow) {
    decision.end = absl::UnavailableError(absl::StrCat(
        record.reason, " after ", generated, " tokens; ", record.num_losses,
        " targets in a row were lost without one token more"));
    return decision;
  }
  if (record.retry_ns <= now_ns) {
    record.retry_ns = kNever;
    record.refused_by = record.failed_on;
  }
  decision.target_id = EqualTarget(record, /*except=*/{});
  if (decision.target_id != 0) return decision;
  if (record.give_up_ns <= now_ns) {
    decision.end = absl::UnavailableError(absl::StrCat(
        record.reason, " after ", generated,
        " tokens; no other with fingerprint ", record.fingerprint,
        " and numerics_id ", record.numerics_id, " had room within ",
        absl::FormatDuration(absl::Nanoseconds(timeout_ns_))));
  } else {
    decision.wake_ns = std::min(record.give_up_ns, record.retry_ns);
  }
  return decision;
}

WorkerIds Failover::KeptForHeld() const {
  WorkerIds kept;
  for (const auto& [session_id, record] : held_) {
    for (const auto& [id, worker] : fleet_.workers()) {
      if (!record->refused_by.contains(id) && CouldGoOn(*record, id, worker)) {
        kept.insert(id);
      }
    }
  }
  return kept;
}

}  // namespace nacre::coordinator
