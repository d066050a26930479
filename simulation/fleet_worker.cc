#include "simulation/fleet_worker.h"

namespace nacre::simulation {

void FleetWorker::Tell(std::function<void()> deliver) {
  to_worker_.Send(
      [this, incarnation = incarnation_, deliver = std::move(deliver)] {
        if (!up_ || incarnation != incarnation_) return;
        deliver();
        Touch();
      });
}

void FleetWorker::Report(std::function<void()> deliver) {
  to_coordinator_.Send(
      [this, incarnation = incarnation_, deliver = std::move(deliver)] {
        if (incarnation == incarnation_) deliver();
      });
}

void FleetWorker::Die() {
  if (!up_) return;
  Enter(State::kDown);
  up_ = false;
  hung_ = false;
  stepping_ = false;
  LoseSessions();
  const int64_t noticed_ns =
      world_.queue.now_ns() + world_.random.Between(hop_.min_ns, hop_.max_ns);
  world_.queue.Post(noticed_ns, [this, incarnation = incarnation_] {
    events_.OnDown(this, incarnation);
  });
  ++incarnation_;
}

void FleetWorker::Return() {
  if (up_) return;
  Enter(State::kNoWork);
  up_ = true;
  Report([this] { events_.OnUp(this); });
}

void FleetWorker::Hang() {
  if (!up_ || hung_) return;
  Enter(State::kDown);
  hung_ = true;
}

void FleetWorker::Enter(State state) {
  const int64_t now_ns = world_.queue.now_ns();
  int64_t* const sums[] = {&time_.busy_ns, &time_.wait_ns, &time_.no_work_ns,
                           &time_.down_ns};
  *sums[static_cast<int>(state_)] += now_ns - since_ns_;
  state_ = state;
  since_ns_ = now_ns;
}

const WorkerTime& FleetWorker::Time() {
  Enter(state_);
  return time_;
}

void FleetWorker::Step(int64_t duration_ns, std::function<void()> finish) {
  Enter(State::kBusy);
  stepping_ = true;
  finish_step_ = std::move(finish);
  world_.queue.Post(world_.queue.now_ns() + duration_ns,
                    [this, incarnation = incarnation_, step = ++step_] {
                      if (incarnation == incarnation_ && step == step_)
                        EndStep();
                    });
}

void FleetWorker::EndStep() {
  if (!stepping_ || hung_) return;
  stepping_ = false;
  std::exchange(finish_step_, nullptr)();
  Touch();
}

void FleetWorker::Touch() {
  if (touched_) return;
  touched_ = true;
  world_.touched.push_back(this);
}

void FleetWorker::WakeAt(int64_t time_ns) {
  world_.queue.Post(time_ns, [this, incarnation = incarnation_] {
    if (incarnation == incarnation_) Touch();
  });
}

}  // namespace nacre::simulation
