#include "tools/bench/step_recorder.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace nacre::tools {
namespace {

constexpr double kHeldUp = 2.0;  // times the median

bool IsStep(v1::Span::Kind kind) {
  return kind == v1::Span::KIND_PREFILL || kind == v1::Span::KIND_DRAFT ||
         kind == v1::Span::KIND_VERIFY;
}

struct Durations {
  double sum = 0.0;
  int count = 0;
  double left_out = 0.0;  // the sum of those held up, which are not in `sum`
};

Durations SumUp(std::vector<double> values) {
  const auto middle = values.begin() + (values.size() - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  const double most = kHeldUp * *middle;
  Durations durations;
  for (const double value : values) {
    if (value > most) {
      durations.left_out += value;
    } else {
      durations.sum += value;
      ++durations.count;
    }
  }
  return durations;
}

}  // namespace

void StepRecorder::Add(
    const google::protobuf::RepeatedPtrField<v1::TraceLane>& lanes) {
  for (const v1::TraceLane& lane : lanes) {
    for (const v1::Span& span : lane.spans()) {
      if (!IsStep(span.kind()) || span.batch_rows() == 0 ||
          span.duration_ns() == 0) {
        continue;
      }
      if (span.abandoned()) {
        abandons_steps_ = true;
        continue;
      }
      Worker& worker = workers_[lane.address()];
      worker.role = lane.role();
      Step& step = worker.steps[span.start_ns()];
      step.rows = static_cast<int>(span.batch_rows());
      step.duration_ns = static_cast<int64_t>(span.duration_ns());
      // Of the step's spans one may be of a prompt, another not.
      step.prefills = step.prefills || span.kind() == v1::Span::KIND_PREFILL;
    }
  }
}

int StepRecorder::num_workers(v1::WorkerRole role) const {
  return static_cast<int>(std::count_if(
      workers_.begin(), workers_.end(),
      [role](const auto& each) { return each.second.role == role; }));
}

std::map<int, std::vector<double>> StepRecorder::ByRows(
    v1::WorkerRole role) const {
  std::map<int, std::vector<double>> by_rows;
  for (const auto& [address, worker] : workers_) {
    if (worker.role != role) continue;
    for (const auto& [start_ns, step] : worker.steps) {
      by_rows[step.rows].push_back(static_cast<double>(step.duration_ns));
    }
  }
  return by_rows;
}

std::optional<StepTimes> StepRecorder::Curve(v1::WorkerRole role) const {
  std::vector<StepTimes::Point> points;
  for (auto& [rows, values] : ByRows(role)) {
    const Durations durations = SumUp(values);
    points.push_back({rows, durations.sum / durations.count});
  }
  if (points.empty()) return std::nullopt;
  return StepTimes(std::move(points));
}

double StepRecorder::HeldUpShare() const {
  double all = 0.0;
  double left_out = 0.0;
  for (const v1::WorkerRole role :
       {v1::WORKER_ROLE_TARGET, v1::WORKER_ROLE_DRAFT}) {
    for (auto& [rows, values] : ByRows(role)) {
      const Durations durations = SumUp(values);
      all += durations.sum + durations.left_out;
      left_out += durations.left_out;
    }
  }
  return all > 0.0 ? left_out / all : 0.0;
}

double StepRecorder::PrefillShare() const {
  double all = 0.0;
  double prefill = 0.0;
  for (const auto& [address, worker] : workers_) {
    if (worker.role != v1::WORKER_ROLE_TARGET) continue;
    for (const auto& [start_ns, step] : worker.steps) {
      const double duration = static_cast<double>(step.duration_ns);
      all += duration;
      if (step.prefills) prefill += duration;
    }
  }
  return all > 0.0 ? prefill / all : 0.0;
}

}  // namespace nacre::tools
