#include "tools/step_recorder.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace nacre::tools {
namespace {

using simulation::StepTimes;

constexpr double kHeldUp = 2.0;  // times the median

bool IsStep(v1::Span::Kind kind) {
  return kind == v1::Span::KIND_PREFILL || kind == v1::Span::KIND_DRAFT ||
         kind == v1::Span::KIND_VERIFY;
}

double MeanOfUndisturbed(std::vector<double> values) {
  const auto middle = values.begin() + (values.size() - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  const double most = kHeldUp * *middle;
  double sum = 0.0;
  int count = 0;
  for (const double value : values) {
    if (value > most) continue;
    sum += value;
    ++count;
  }
  return sum / count;
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

std::optional<StepTimes> StepRecorder::Curve(v1::WorkerRole role) const {
  std::map<int, std::vector<double>> by_rows;
  for (const auto& [address, worker] : workers_) {
    if (worker.role != role) continue;
    for (const auto& [start_ns, step] : worker.steps) {
      by_rows[step.rows].push_back(static_cast<double>(step.duration_ns));
    }
  }
  if (by_rows.empty()) return std::nullopt;
  std::vector<StepTimes::Point> points;
  for (auto& [rows, durations] : by_rows) {
    points.push_back({rows, MeanOfUndisturbed(std::move(durations))});
  }
  return StepTimes(std::move(points));
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
