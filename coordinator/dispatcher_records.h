// What the dispatcher keeps of each worker and each request that waits, and
// what a turn leaves to be done without its lock. Private to it, under its
// lock.

#ifndef COORDINATOR_DISPATCHER_RECORDS_H_
#define COORDINATOR_DISPATCHER_RECORDS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "coordinator/answer.h"
#include "coordinator/outbox.h"
#include "coordinator/request.h"
#include "coordinator/status_board.h"
#include "coordinator/worker_info.h"
#include "speculation/estimators.h"

namespace nacre::coordinator {

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

struct WorkerRecord {
  WorkerRecord(WorkerInfo worker_info, NotedLink to)
      : cell(std::make_shared<WorkerCell>(std::move(worker_info))),
        role(cell->info.role),
        sessions(cell),
        info(cell->info),
        client(std::move(to)) {
    auto curve = std::make_shared<speculation::StepTimeCurve>();
    for (const auto& [rows, duration_ns] : info.step_times_ns) {
      curve->Add(rows, duration_ns);
    }
    step_times = std::move(curve);
  }

  // A step took so long.
  void AddStepTime(int rows, int64_t duration_ns) {
    // Plans may be made with the curve meanwhile.
    auto curve = std::make_shared<speculation::StepTimeCurve>(*step_times);
    curve->Add(rows, duration_ns);
    step_times = std::move(curve);
    token_rows = 0;
  }
  // Of a draft: a step of all its sessions.
  double TokenNs() {
    const int rows = static_cast<int>(sessions.size());
    if (std::exchange(token_rows, rows) != rows) {
      token_ns = step_times->At(rows);
    }
    return token_ns;
  }

  // Its lane of a trace, without the spans.
  TraceLane lane() const {
    TraceLane lane;
    lane.role = role;
    lane.address = info.address;
    lane.clock_offset_ns = client->clock_offset_ns();
    return lane;
  }

  std::shared_ptr<WorkerCell> cell;
  // Side by side: who places a session reads them of all workers.
  const WorkerRole role;
  SessionSet sessions;
  const WorkerInfo& info;
  NotedLink client;
  ReadyFlag ready{&cell->ready};  // false: draining
  int async_sessions = 0;         // of them, on a target
  std::shared_ptr<const speculation::StepTimeCurve> step_times;
  // Of a draft with the targets, which all hold the same model.
  speculation::AcceptanceEstimator acceptance;
  int64_t last_step_start_ns = 0;
  int token_rows = 0;  // of token_ns; 0: it is not known
  double token_ns = 0.0;
};

struct WaitingRequest {
  std::shared_ptr<SessionCell> cell;
  std::shared_ptr<Answer> answer;
  uint64_t hidden_channel = 0;
  int64_t since_ns = 0;

  const RequestSpec& request() const { return *cell->request; }
};

// A client that takes nothing.
struct Stall {
  int64_t since_ns = 0;
  int64_t taken = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCHER_RECORDS_H_
