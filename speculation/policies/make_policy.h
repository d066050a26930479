// From a PolicySpec to the policy of one session.
//
// Pure.

#ifndef SPECULATION_POLICIES_MAKE_POLICY_H_
#define SPECULATION_POLICIES_MAKE_POLICY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "speculation/draft_length.h"
#include "speculation/policies/cali_ts.h"
#include "speculation/policies/disco.h"
#include "speculation/policies/policy_spec.h"
#include "speculation/policies/specdec_plus_plus.h"

namespace nacre::speculation {

// What a calibration file holds: its own defaults, and what its kind needs.
struct PolicyCalibration {
  PolicySpec defaults;
  absl::optional<DiscoWeights> disco;
  absl::optional<CaliTsScorer> cali_ts;
  absl::optional<AcceptanceHead> head;
};

struct PolicyInputs {
  uint64_t seed = 0;  // of the request
  // Whether OnTargetHidden will be called; without, cali-ts has no model score.
  bool has_target_hidden = false;
  std::vector<int32_t> oracle_ids;          // the recorded answer; oracle only
  int hidden_size = 0;                      // of the draft
  const PolicyCalibration* file = nullptr;  // of that kind; outlives the policy
};

// Null where the plan decides alone. FAILED_PRECONDITION where a file is needed
// and missing, or the draft's hidden size is not the file's.
absl::StatusOr<std::unique_ptr<DraftLength>> MakePolicy(const PolicySpec& spec,
                                                        PolicyInputs inputs);

}  // namespace nacre::speculation

#endif  // SPECULATION_POLICIES_MAKE_POLICY_H_
