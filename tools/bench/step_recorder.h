// How long the steps of the workers took while they worked: from the spans of
// traced answers to the curves that a simulation wants. Pure; no threads.

#ifndef TOOLS_BENCH_STEP_RECORDER_H_
#define TOOLS_BENCH_STEP_RECORDER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/step_times.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/inference.pb.h"

namespace nacre::tools {

class StepRecorder {
 public:
  // The lanes of one answer. A step that served several is counted once: it is
  // known by its worker and its start.
  void Add(const google::protobuf::RepeatedPtrField<v1::TraceLane>& lanes);

  // Whether a draft has abandoned a step. Such are no step times.
  bool abandons_steps() const { return abandons_steps_; }

  // Those of the role that have stepped.
  int num_workers(v1::WorkerRole role) const;

  // By rows of the step, prompt rows as well: the mean. Steps longer than twice
  // the median of theirs are left out: something else held them up. Unset: none
  // of the role has stepped.
  std::optional<StepTimes> Curve(v1::WorkerRole role) const;

  // Of the targets' time in steps, what went to steps with prompt rows; 0
  // without any.
  double PrefillShare() const;
  // Of all workers' time in steps, what went to those that the curves leave
  // out: how disturbed the run was.
  double HeldUpShare() const;

 private:
  struct Step {
    int rows = 0;
    int64_t duration_ns = 0;
    bool prefills = false;
  };
  struct Worker {
    v1::WorkerRole role = v1::WORKER_ROLE_UNSPECIFIED;
    std::map<uint64_t, Step> steps;  // by start
  };

  // The role's steps by their rows, in nanoseconds.
  std::map<int, std::vector<double>> ByRows(v1::WorkerRole role) const;

  std::map<std::string, Worker> workers_;  // by address
  bool abandons_steps_ = false;
};

}  // namespace nacre::tools

#endif  // TOOLS_BENCH_STEP_RECORDER_H_
