#include "coordinator/dispatch/kv_reporter.h"

#include <algorithm>

#include "coordinator/dispatch/draft_needs.h"

namespace nacre::coordinator {
namespace {

// One more request that waits for room.
void AddWaiting(uint64_t session_id, const RequestSpec& request,
                wire::KvReport* report) {
  const int64_t need = Placer::TargetNeed(request);
  if (report->need_session == 0) {
    report->need_session = session_id;
    report->need = need;
  }
  report->wanted = AddCapped(report->wanted, need);
}

bool IsNews(const wire::KvReport& before, const wire::KvReport& now,
            int64_t granted) {
  return now.need_session != before.need_session ||
         now.wanted > before.wanted ||
         (now.reserved < before.reserved && before.reserved > granted);
}

}  // namespace

void KvReporter::AddTargetNeeds(uint64_t worker_id,
                                const std::vector<uint64_t>& held_ids,
                                wire::KvReport* report) const {
  // A session there must end first: more KV would be of no use.
  if (state_.fleet.ledger().is_full(worker_id)) return;
  const FleetWorker& worker = state_.fleet.at(worker_id);
  const auto could_take = [&](const RequestSpec& request) {
    return state_.placer.CouldTake(worker_id, worker, request) &&
           !state_.placer.TooNarrow(request).contains(worker_id);
  };
  for (const uint64_t id : held_ids) {
    const RequestSpec& request = state_.Find(id)->request();
    if (could_take(request)) AddWaiting(id, request, report);
  }
  const int64_t held = report->wanted;
  if (report->need_session == 0) {
    const auto first = state_.queue.First(could_take);
    if (!first.has_value()) return;
    AddWaiting(*first, state_.queue.request(*first), report);
  }
  report->wanted = AddCapped(held, state_.queue.needed_tokens());
}

void KvReporter::AddDraftNeeds(uint64_t worker_id,
                               wire::KvReport* report) const {
  const WorkerInfo& draft = state_.fleet.at(worker_id).info;
  const KvLedger& ledger = state_.fleet.ledger();
  for (const uint64_t id : pairing_.undrafted()) {
    if (report->wanted >= ledger.capacity_tokens(worker_id)) return;
    const Session& session = *state_.Find(id);
    const int64_t length = session.schedule().committed_length();
    if (session.failover.refused_by.contains(worker_id) ||
        !CouldDraft(draft, session.request(), length)) {
      continue;
    }
    int64_t need = Placer::TextNeed(draft, session.request());
    if (!ledger.CouldHold(worker_id, need)) {
      need = std::min(need, LeastDraftNeed(session.request(), length));
    }
    if (ledger.CouldHold(worker_id, need)) {
      report->wanted = AddCapped(report->wanted, need);
    }
  }
}

wire::KvReport KvReporter::ReportFor(
    uint64_t worker_id, const std::vector<uint64_t>& held_ids) const {
  const FleetWorker& worker = state_.fleet.at(worker_id);
  wire::KvReport report;
  report.serial = worker.grant_serial;
  report.reserved = state_.fleet.ledger().reserved_tokens(worker_id);
  report.sessions = static_cast<int>(worker.sessions.size());
  if (!worker.ready) return report;
  const int64_t capacity = state_.fleet.ledger().capacity_tokens(worker_id);
  if (worker.role == WorkerRole::kTarget) {
    AddTargetNeeds(worker_id, held_ids, &report);
  } else {
    AddDraftNeeds(worker_id, &report);
  }
  // More than all there is is not to be had.
  report.wanted = std::min(report.wanted, capacity);
  return report;
}

void KvReporter::Report(uint64_t worker_id) {
  const wire::KvReport report = ReportFor(worker_id, state_.failover.held());
  state_.fleet.at(worker_id).kv_report = report;
  pairing_.link(worker_id)->ReportKv(report);
}

void KvReporter::ReportNews() {
  if (state_.fleet.granting().empty()) return;
  const std::vector<uint64_t> held_ids = state_.failover.held();
  for (const uint64_t worker_id : state_.fleet.granting()) {
    const FleetWorker& worker = state_.fleet.at(worker_id);
    // Nothing is granted yet: the answer to the first grant says all.
    if (worker.grant_serial == 0) continue;
    if (IsNews(worker.kv_report, ReportFor(worker_id, held_ids),
               state_.fleet.ledger().granted_tokens(worker_id))) {
      Report(worker_id);
    }
  }
}

}  // namespace nacre::coordinator
