#include "simulation/fleet.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "common/check.h"
#include "simulation/fleet_coordinator.h"
#include "simulation/fleet_draft.h"
#include "simulation/fleet_target.h"

namespace nacre::simulation {
namespace {

double Ratio(double a, double b) { return b == 0.0 ? 0.0 : a / b; }

void Check(const FleetOptions& options) {
  NACRE_CHECK(options.streams >= 1 && options.targets >= 1 &&
                  options.drafts >= 0 && options.requests >= 1,
              "a fleet needs a stream, a request and a target");
  NACRE_CHECK(options.prompt_tokens >= 1 && options.output_tokens >= 1 &&
                  options.max_step_rows >= 1 && options.prefill_chunk >= 1,
              "requests need a prompt token and an output token");
  NACRE_CHECK(options.alpha >= 0.0 && options.alpha <= 1.0, "alpha in [0, 1]");
  for (const ReplayedRequest& request : options.replay) {
    NACRE_CHECK(request.prompt_tokens >= 1 && request.output_tokens >= 1 &&
                    request.matches != nullptr && !request.matches->empty(),
                "a replayed request needs a prompt token, an output token and "
                "matches");
  }
  NACRE_CHECK(options.method.ablation == Ablation::kNone ||
                  options.method.method == speculation::Method::kPearl,
              "only pearl can be ablated");
}

class FleetSimulator {
 public:
  explicit FleetSimulator(const FleetOptions& options)
      : options_(options),
        world_{.random = Random(options.seed)},
        coordinator_(&world_, options_) {
    for (int i = 0; i < options_.targets; ++i) {
      targets_.push_back(
          std::make_unique<FleetTarget>(&world_, &coordinator_, options_));
      coordinator_.Add(targets_.back().get());
    }
    // A draft that no method uses would only blur the account.
    const bool drafts = options_.method.method != speculation::Method::kAr;
    for (int i = 0; drafts && i < options_.drafts; ++i) {
      drafts_.push_back(
          std::make_unique<FleetDraft>(&world_, &coordinator_, options_));
      coordinator_.Add(drafts_.back().get());
    }
    for (const Failure& failure : options_.failures) {
      const auto each = [&](const auto& workers) {
        const int count = static_cast<int>(workers.size());
        for (int i = 0; i < count; ++i) {
          if (failure.worker.value_or(i) == i) {
            Schedule(failure, workers[i].get());
          }
        }
      };
      failure.role == Role::kDraft ? each(drafts_) : each(targets_);
    }
  }

  FleetResult Run() {
    coordinator_.Start();
    int64_t events = 0;
    while (!coordinator_.finished() && !Stalled()) {
      world_.queue.RunNext();
      ++events;
      // Engines look at everything that has arrived by now.
      if (!world_.queue.empty() &&
          world_.queue.next_time_ns() <= world_.queue.now_ns()) {
        continue;
      }
      for (FleetWorker* worker : std::exchange(world_.touched, {})) {
        worker->LookOnce();
      }
    }
    FleetResult result = coordinator_.result();
    result.finished = coordinator_.finished();
    result.events = events;
    for (const auto& target : targets_) {
      result.gate_timeouts += target->gate_timeouts();
      result.target += target->Time();
    }
    for (const auto& draft : drafts_) result.draft += draft->Time();
    return result;
  }

 private:
  // Nothing will happen any more, or nothing but failures of other workers.
  bool Stalled() const {
    return world_.queue.empty() ||
           std::none_of(targets_.begin(), targets_.end(),
                        [](const auto& target) {
                          return target->up() || target->returns;
                        });
  }

  void Schedule(const Failure& failure, FleetWorker* worker) {
    double after_ns = static_cast<double>(failure.after_ns);
    if (failure.repeats) {
      after_ns *= -std::log(1.0 - world_.random.Unit());
    }
    world_.queue.Post(world_.queue.now_ns() + std::llround(after_ns),
                      [this, failure, worker] { Fail(failure, worker); });
  }

  void Fail(const Failure& failure, FleetWorker* worker) {
    if (worker->up()) {
      failure.hangs ? worker->Hang() : worker->Die();
      worker->returns = failure.back_after_ns.has_value();
    }
    if (!failure.back_after_ns.has_value()) return;
    world_.queue.Post(world_.queue.now_ns() + *failure.back_after_ns,
                      [this, failure, worker] {
                        worker->Die();  // one that hung
                        worker->Return();
                        if (failure.repeats) Schedule(failure, worker);
                      });
  }

  const FleetOptions& options_;
  FleetWorld world_;
  FleetCoordinator coordinator_;
  std::vector<std::unique_ptr<FleetTarget>> targets_;
  std::vector<std::unique_ptr<FleetDraft>> drafts_;
};

}  // namespace

double WorkerTime::wait_share() const {
  return Ratio(static_cast<double>(wait_ns),
               static_cast<double>(busy_ns + wait_ns));
}

WorkerTime& WorkerTime::operator+=(const WorkerTime& other) {
  busy_ns += other.busy_ns;
  wait_ns += other.wait_ns;
  no_work_ns += other.no_work_ns;
  down_ns += other.down_ns;
  return *this;
}

double FleetResult::tokens_per_second() const {
  return 1e9 * Ratio(static_cast<double>(output_tokens),
                     static_cast<double>(virtual_ns));
}

double FleetResult::mean_accepted_length() const {
  return Ratio(static_cast<double>(stats.committed),
               static_cast<double>(stats.rounds));
}

double FleetResult::acceptance_rate() const {
  return Ratio(static_cast<double>(stats.accepted),
               static_cast<double>(stats.verified));
}

FleetResult SimulateFleet(const FleetOptions& options) {
  Check(options);
  return FleetSimulator(options).Run();
}

}  // namespace nacre::simulation
