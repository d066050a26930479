#include "tests/simulation/protocol/policies.h"

#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "speculation/policies/policy_spec.h"
#include "tests/simulation/protocol/expected.h"
#include "tests/simulation/protocol/simulated_model.h"

namespace nacre::protocol {
namespace {

using coordinator::WorkerRole;
using speculation::PolicyKind;
using speculation::PolicySpec;

constexpr const char* kPolicies[] = {"constant:n=1",
                                     "constant:n=3",
                                     "heuristic:start=2",
                                     "confidence",
                                     "confidence:threshold=0.2,max=3",
                                     "svip",
                                     "svip:h=0.5",
                                     "beta-ts",
                                     "beta-ts:update=bernoulli",
                                     "cali-ts",
                                     "disco",
                                     "disco:max=2",
                                     "specdec++",
                                     "specdec++:min=1,threshold=0.4",
                                     "optimal-static",
                                     "optimal-static:gamma=2",
                                     "oracle",
                                     "load"};

PolicySpec Parse(const std::string& text) {
  const absl::StatusOr<PolicySpec> spec = speculation::ParsePolicySpec(text);
  NACRE_CHECK(spec.ok(), "a policy of the simulation's own");
  return *spec;
}

std::vector<float> Weights(Random& random, size_t count) {
  std::vector<float> weights(count);
  for (float& weight : weights) {
    weight = static_cast<float>(4.0 * random.Unit() - 2.0);
  }
  return weights;
}

draft_worker::PolicyLibrary MakeLibrary() {
  Random random(12);
  const auto file = [](const char* defaults) {
    draft_worker::PolicyFile file;
    file.target_fingerprint = "target";
    file.calibration.defaults = Parse(defaults);
    return file;
  };
  draft_worker::PolicyLibrary library;
  draft_worker::PolicyFile disco = file("disco:max=4");
  constexpr size_t kWidth = 5;
  disco.calibration.disco = {
      Weights(random, kWidth * speculation::kDiscoInputs),
      Weights(random, kWidth), Weights(random, kWidth), 0.5f};
  library.Add(PolicyKind::kDisco, std::move(disco));
  draft_worker::PolicyFile head = file("specdec++");
  head.calibration.head = {2, Weights(random, kVocabSize * kVocabSize),
                           Weights(random, kVocabSize),
                           Weights(random, 2 * kVocabSize), Weights(random, 2)};
  library.Add(PolicyKind::kSpecDecPlusPlus, std::move(head));
  library.Add(PolicyKind::kOptimalStatic, file("optimal-static:gamma=3"));
  draft_worker::PolicyFile cali_ts = file("cali-ts");
  cali_ts.calibration.cali_ts = speculation::CaliTsScorer(
      {kVocabSize, kVocabSize,
       Weights(random,
               speculation::CaliTsModel::kSteps * kVocabSize * kVocabSize),
       Weights(random, 4 * kVocabSize)});
  library.Add(PolicyKind::kCaliTs, std::move(cali_ts));
  return library;
}

}  // namespace

draft_worker::PolicyLibrary& Library(bool has_files) {
  static auto& full = *new draft_worker::PolicyLibrary(MakeLibrary());
  static auto& empty = *new draft_worker::PolicyLibrary();
  return has_files ? full : empty;
}

void RecordAnswer(int table, coordinator::RequestSpec* spec) {
  spec->oracle_ids = ExpectedOutput(LogitTable::Target(table), *spec).token_ids;
}

void DrawPolicies(Schedule* schedule) {
  Random random(schedule->seed * 0x9E3779B97F4A7C15 + 7);
  for (WorkerOptions& worker : schedule->workers) {
    worker.has_policy_files =
        worker.role == WorkerRole::kDraft && random.Percent(85);
  }
  if (random.Percent(50)) return;
  for (RequestOptions& request : schedule->requests) {
    if (random.Percent(20)) continue;
    coordinator::RequestSpec& spec = request.spec;
    spec.policy =
        Parse(kPolicies[random.Below(static_cast<int>(std::size(kPolicies)))]);
    if (spec.policy.kind() != PolicyKind::kOracle) continue;
    RecordAnswer(schedule->table, &spec);
    request.oracle_is_right = random.Percent(70);
    if (request.oracle_is_right) continue;
    for (int32_t& token_id : spec.oracle_ids) {
      if (random.Percent(30)) token_id = random.Below(kVocabSize);
    }
    spec.oracle_ids.resize(static_cast<size_t>(
        random.Below(static_cast<int>(spec.oracle_ids.size()) + 1)));
  }
}

}  // namespace nacre::protocol
