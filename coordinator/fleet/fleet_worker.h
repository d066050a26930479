// What the coordinator knows of one worker in service, and the few numbers of
// it that others may read at any time.
//
// Plain values; the holder of a FleetWorker locks. The cell may be read by any
// thread.

#ifndef COORDINATOR_FLEET_FLEET_WORKER_H_
#define COORDINATOR_FLEET_FLEET_WORKER_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "coordinator/fleet/worker_info.h"
#include "speculation/estimators.h"
#include "speculation/plan.h"
#include "speculation/ranks.h"
#include "wire/kv_report.h"

namespace nacre::coordinator {

// A worker as others see it.
struct WorkerCell {
  explicit WorkerCell(WorkerInfo worker_info) : info(std::move(worker_info)) {}

  const WorkerInfo info;
  int max_sessions = 0;  // constant since it is in service; 0: any number
  std::atomic<bool> ready{true};
  std::atomic<int> sessions{0};
  std::atomic<int64_t> reserved_tokens{0};  // KV promised there
};

// Sessions on a worker, whose number its cell shows.
class SessionSet {
 public:
  explicit SessionSet(std::shared_ptr<WorkerCell> cell)
      : cell_(std::move(cell)) {}

  void insert(uint64_t id) {
    ids_.insert(id);
    cell_->sessions = static_cast<int>(ids_.size());
  }
  void erase(uint64_t id) {
    ids_.erase(id);
    cell_->sessions = static_cast<int>(ids_.size());
  }
  bool contains(uint64_t id) const { return ids_.contains(id); }
  size_t size() const { return ids_.size(); }
  bool empty() const { return ids_.empty(); }
  // The oldest first; some may leave it meanwhile.
  std::vector<uint64_t> InOrder() const {
    std::vector<uint64_t> ids(ids_.begin(), ids_.end());
    std::sort(ids.begin(), ids.end());
    return ids;
  }

 private:
  absl::flat_hash_set<uint64_t> ids_;
  std::shared_ptr<WorkerCell> cell_;
};

// Whether a worker takes sessions, as its cell shows it.
class ReadyFlag {
 public:
  explicit ReadyFlag(std::atomic<bool>* shown) : shown_(shown) {}
  ReadyFlag& operator=(bool ready) {
    *shown_ = ready;
    return *this;
  }
  // NOLINTNEXTLINE(google-explicit-constructor): read like the bool it is.
  operator bool() const { return *shown_; }

 private:
  std::atomic<bool>* shown_;
};

struct FleetWorker {
  explicit FleetWorker(WorkerInfo worker_info)
      : cell(std::make_shared<WorkerCell>(std::move(worker_info))),
        role(cell->info.role),
        sessions(cell),
        info(cell->info) {
    auto curve = std::make_shared<speculation::StepTimeCurve>();
    for (const auto& [rows, duration_ns] : info.step_times_ns) {
      curve->Add(rows, duration_ns);
    }
    step_times = std::move(curve);
  }

  // How many sessions it runs, whoever their coordinator is.
  size_t load() const {
    return sessions.size() + static_cast<size_t>(other_sessions);
  }

  // A step took so long.
  void AddStepTime(int rows, int64_t duration_ns) {
    // Plans may be made with the curve meanwhile.
    auto curve = std::make_shared<speculation::StepTimeCurve>(*step_times);
    curve->Add(rows, duration_ns);
    step_times = std::move(curve);
    token_rows = 0;
  }
  // The step that a span of it reports, once: a span of each of its sessions
  // reports the same step. A draft's `abandoned` steps are no step times.
  void OnSpan(const SpanRecord& span) {
    const SpanRecord::Kind step_kind = role == WorkerRole::kDraft
                                           ? SpanRecord::Kind::kDraft
                                           : SpanRecord::Kind::kVerify;
    if (span.kind != step_kind || span.abandoned ||
        span.start_ns == last_step_start_ns) {
      return;
    }
    last_step_start_ns = span.start_ns;
    AddStepTime(span.batch_rows, span.duration_ns);
  }
  // Of a draft: a step of all its sessions, and with as many rows of one of
  // them as a plan may choose.
  double TokenNs() {
    const int rows = static_cast<int>(load());
    if (std::exchange(token_rows, rows) != rows) {
      token_ns = step_times->At(rows);
      for (size_t i = 0; i < rows_ns.size(); ++i) {
        rows_ns[i] =
            step_times->At(rows - 1 + speculation::kDraftRowChoices[i]);
      }
    }
    return token_ns;
  }

  std::shared_ptr<WorkerCell> cell;
  // Side by side: a search for a place reads them of all workers.
  const WorkerRole role;
  SessionSet sessions;
  const WorkerInfo& info;
  ReadyFlag ready{&cell->ready};  // false: draining
  int async_sessions = 0;         // of them, on a target
  // Of a worker that grants KV to several coordinators: sessions that it runs
  // for others, and the latest grant (0: none yet). Also what it was told last.
  int other_sessions = 0;
  uint64_t grant_serial = 0;
  wire::KvReport kv_report;
  std::shared_ptr<const speculation::StepTimeCurve> step_times;
  // Of a draft with the targets, which all hold the same model.
  speculation::AcceptanceEstimator acceptance;
  speculation::RankHistogram ranks;  // where it reports them
  int64_t last_step_start_ns = 0;
  int token_rows = 0;  // of token_ns; 0: it is not known
  double token_ns = 0.0;
  std::array<double, speculation::kNumRowChoices> rows_ns = {};  // likewise
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_FLEET_FLEET_WORKER_H_
