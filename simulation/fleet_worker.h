// What the workers of a simulated fleet share: a connection to the coordinator
// that a death cuts, and an account of their time. fleet.h is the way in. No
// threads.

#ifndef SIMULATION_FLEET_WORKER_H_
#define SIMULATION_FLEET_WORKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "simulation/event_queue.h"
#include "simulation/fake_models.h"
#include "simulation/fleet.h"
#include "simulation/link.h"
#include "simulation/match_source.h"
#include "simulation/random.h"
#include "speculation/pipeline.h"

namespace nacre::simulation {

class FleetWorker;

// What all parts of a run share.
struct FleetWorld {
  EventQueue queue;
  Random random;
  std::vector<FleetWorker*> touched;  // have to look for work
};

// The models as one session sees them.
struct SessionModels {
  FakeModels models;
  std::shared_ptr<MatchSource> matches;
  int64_t first_match = 0;  // the one of its first generated token
  int prompt_length = 0;

  int32_t DraftToken(absl::Span<const int32_t> prefix) const {
    const int64_t generated =
        static_cast<int64_t>(prefix.size()) - prompt_length;
    return models.DraftToken(prefix, matches->At(first_match + generated));
  }
};

// One target step for one session.
struct FleetVerdict {
  uint64_t session_id = 0;
  speculation::Verdict verdict;
  int other_rows = 0;  // of the step, of other sessions
};

// The coordinator as the workers see it. Called when the message has arrived.
class FleetEvents {
 public:
  virtual ~FleetEvents() = default;
  virtual void OnUp(FleetWorker* worker) = 0;
  virtual void OnDown(FleetWorker* worker, int incarnation) = 0;
  virtual void OnVerdict(FleetWorker* target, const FleetVerdict& verdict) = 0;
  virtual void OnTail(FleetWorker* draft, uint64_t session_id,
                      const speculation::Tail& tail) = 0;
};

class FleetWorker {
 public:
  FleetWorker(FleetWorld* world, FleetEvents* events, LinkDelay hop)
      : world_(*world),
        events_(*events),
        hop_(hop),
        to_worker_(&world->queue, &world->random, hop),
        to_coordinator_(&world->queue, &world->random, hop) {}
  virtual ~FleetWorker() = default;
  FleetWorker(const FleetWorker&) = delete;
  FleetWorker& operator=(const FleetWorker&) = delete;

  // Starts a step if there is one to start. Called when all that arrives at a
  // moment has arrived, where something did.
  void LookOnce() {
    touched_ = false;
    Look();
  }

  // `deliver` runs here, or, with Report, at the coordinator. Lost when this
  // worker dies on the way.
  void Tell(std::function<void()> deliver);
  void Report(std::function<void()> deliver);

  // Loses everything; the coordinator hears of it one hop later.
  void Die();
  // With nothing from before.
  void Return();
  // Stays connected and does nothing until it dies.
  void Hang();
  bool up() const { return up_; }
  int incarnation() const { return incarnation_; }

  // With the time until now.
  const WorkerTime& Time();

  bool returns = false;  // whether somebody will restart it

  // Kept by the coordinator.
  bool known_up = true;
  int known_incarnation = 0;
  int load = 0;  // sessions

 protected:
  enum class State { kBusy, kWait, kNoWork, kDown };

  virtual void Look() = 0;
  virtual void LoseSessions() = 0;
  void Enter(State state);
  bool hung() const { return hung_; }
  bool stepping() const { return stepping_; }
  // `finish` runs at the end of the step unless this worker has died or hangs.
  void Step(int64_t duration_ns, std::function<void()> finish);
  // Ends the running step now, as if it had been as short as that.
  void EndStep();
  void Touch();
  // Touches at `time_ns`.
  void WakeAt(int64_t time_ns);

  FleetWorld& world_;
  FleetEvents& events_;

 private:
  const LinkDelay hop_;
  Link to_worker_;
  Link to_coordinator_;
  int incarnation_ = 0;
  bool up_ = true;
  bool hung_ = false;
  bool stepping_ = false;
  int64_t step_ = 0;  // its number
  std::function<void()> finish_step_;
  bool touched_ = false;
  State state_ = State::kNoWork;
  int64_t since_ns_ = 0;
  WorkerTime time_;
};

}  // namespace nacre::simulation

#endif  // SIMULATION_FLEET_WORKER_H_
