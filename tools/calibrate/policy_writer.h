// Writes a calibration as a draft worker reads it (docs/policies.md,
// "Calibration files").

#ifndef TOOLS_CALIBRATE_POLICY_WRITER_H_
#define TOOLS_CALIBRATE_POLICY_WRITER_H_

#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/json.h"
#include "speculation/policies/cali_ts.h"
#include "speculation/policies/disco.h"
#include "speculation/policies/specdec_plus_plus.h"

namespace nacre::tools {

struct PolicyDescription {
  std::string policy;
  std::string draft_fingerprint;
  std::string target_fingerprint;
  nlohmann::ordered_json parameters = nlohmann::ordered_json::object();
  // How it was made, for people: no program reads it.
  nlohmann::ordered_json calibration = nlohmann::ordered_json::object();
};

// None for policies that have only parameters.
using PolicyWeights =
    std::variant<std::monostate, speculation::DiscoWeights,
                 speculation::AcceptanceHead, speculation::CaliTsModel>;

// Creates `dir` where it is not there, writes policy.safetensors (with weights
// only) and then policy.json, each under another name that is changed at the
// end. An older policy.json goes first: a folder with one is whole. Errors of
// the disk.
absl::Status WritePolicyFolder(const std::string& dir,
                               const PolicyDescription& description,
                               const PolicyWeights& weights);

// What a checkpoint is known by, as its workers say in ListWorkers. Errors of
// reading it.
absl::StatusOr<std::string> FingerprintOf(const std::string& model_dir);

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_POLICY_WRITER_H_
