// What `nacre calibrate` is asked for, and what is wrong with it.

#ifndef TOOLS_CALIBRATE_CALIBRATION_PLAN_H_
#define TOOLS_CALIBRATE_CALIBRATION_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/flag_set.h"
#include "proto/inference.pb.h"
#include "speculation/policies/policy_spec.h"
#include "tools/calibrate/dataset.h"
#include "tools/calibrate/recording.h"
#include "tools/calibrate/training_loop.h"
#include "tools/cluster/cluster.h"
#include "tools/generate/prompts_file.h"

namespace nacre::tools {

struct CalibrationFlags {
  std::string policy;
  Cluster::Options cluster;
  std::string prompts;
  std::string out;
  std::optional<int> limit;
  uint32_t max_tokens = 128;
  float temperature = 0.0f;
  uint64_t seed = 1;
  int window = 16;
  std::string thresholds;
  std::string caps = "4,8,16,32";
  int tune_prompts = 16;
  int repeat = 3;
  TrainingOptions training;
  double learning_rate = 0.0;  // 0: the policy's own
  double timeout_s = 600.0;

  void Register(FlagSet* flags);
};

struct CalibrationPlan {
  speculation::PolicyKind kind = speculation::PolicyKind::kDisco;
  std::string out;
  Cluster::Options cluster;
  std::vector<Prompt> prompts;
  PromptSplit split;
  v1::GenerateRequest request;  // everything but prompt, method and policy
  int window = 0;               // longest chunk while features are recorded
  std::vector<double> thresholds;
  std::vector<int> caps;
  int tune_prompts = 0;
  int repeat = 0;
  TrainingOptions training;
  absl::Duration timeout;  // of a request

  // Whether a network is trained, on what workers record, and whether on hidden
  // states.
  bool is_learned() const {
    return kind == speculation::PolicyKind::kDisco ||
           state_needs() != StateNeeds::kNone;
  }
  StateNeeds state_needs() const;

  // Indices of the prompts that parameters are tuned on, and of those that the
  // result is measured on; at most tune_prompts each.
  std::vector<int> TuningPrompts() const;
  std::vector<int> TestPrompts() const;
};

// The parameter of the policy that is tuned beside its longest chunk:
// "threshold", "h" of svip, "sigma-model" of cali-ts.
const char* TunedKey(speculation::PolicyKind kind);
// The policy with this value of it and longest chunk.
std::string PolicyText(speculation::PolicyKind kind, double value, int cap);

// Reads the prompts. INVALID_ARGUMENT: a policy without calibration, a
// missing flag, a number out of range, too few prompts, more or fewer than one
// draft worker; NOT_FOUND: no such file.
absl::StatusOr<CalibrationPlan> BuildCalibrationPlan(
    const CalibrationFlags& flags);

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_CALIBRATION_PLAN_H_
