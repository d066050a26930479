// Any bytes as the two files of a length policy's calibration: refused with
// words, or read, and what was read decides about any row.
//
// Input: 1 byte for the policy, 2 for the length of policy.json (little
// endian), policy.json, policy.safetensors.

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/check.h"
#include "draft_worker/policy_file.h"
#include "speculation/policies/make_policy.h"

namespace {

namespace dw = nacre::draft_worker;
namespace spec = nacre::speculation;

constexpr int kHiddenSize = 4;

void Decide(spec::PolicyKind kind, const spec::PolicyCalibration& file) {
  const auto request = spec::ParsePolicySpec(spec::InfoOf(kind).name);
  NACRE_CHECK(request.ok(), "a name of the table");
  spec::PolicyInputs inputs;
  inputs.hidden_size = kHiddenSize;
  inputs.has_target_hidden = true;
  inputs.file = &file;
  const auto length = spec::MakePolicy(*request, std::move(inputs));
  NACRE_CHECK(length.ok(), "a file was read whose policy cannot be made");
  const std::array<float, spec::kTopProbabilities> top = {0.5f, 0.25f};
  const std::array<float, kHiddenSize> hidden = {1.0f, -1.0f, 1e3f, 0.0f};
  if (file.cali_ts.has_value()) {
    (*length)->OnTargetHidden(std::vector<float>(
        static_cast<size_t>(file.cali_ts->target_size()), 1.0f));
  }
  int chunk = 0;
  for (int i = 0; i < 2 * spec::kMaxWindow; ++i) {
    spec::DraftRow row;
    row.generated = i;
    row.entropy = 1.0f;
    row.top_probabilities = top;
    row.draft_hidden = hidden;
    const bool stops = (*length)->Decide(row) == spec::LengthDecision::kStop;
    chunk = stops ? 0 : chunk + 1;
    NACRE_CHECK(chunk < spec::kMaxWindow, "a chunk over the longest window");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  static constexpr spec::PolicyKind kKinds[] = {
      spec::PolicyKind::kDisco, spec::PolicyKind::kCaliTs,
      spec::PolicyKind::kSpecDecPlusPlus, spec::PolicyKind::kOptimalStatic};
  const spec::PolicyKind kind = kKinds[data[0] % std::size(kKinds)];
  const absl::string_view rest(reinterpret_cast<const char*>(data) + 3,
                               size - 3);
  const size_t json_size = data[1] + size_t{256} * data[2];
  const absl::string_view json = rest.substr(0, json_size);
  const absl::string_view weights = rest.substr(json.size());
  nacre::model::ModelInfo draft;
  draft.fingerprint = "small";
  draft.hidden_size = kHiddenSize;
  const auto file = dw::ParsePolicyFile(
      kind, draft, json,
      [&]() -> absl::StatusOr<absl::string_view> { return weights; });
  if (file.ok()) {
    NACRE_CHECK(!file->target_fingerprint.empty(), "a file for no target");
    Decide(kind, file->calibration);
  } else {
    NACRE_CHECK(!file.status().message().empty(), "an error without words");
  }
  return 0;
}
