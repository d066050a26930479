#include "speculation/policies/make_policy.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "speculation/pipeline.h"
#include "speculation/policies/beta_ts.h"
#include "speculation/policies/confidence.h"
#include "speculation/policies/constant.h"
#include "speculation/policies/heuristic.h"
#include "speculation/policies/oracle.h"
#include "speculation/policies/svip.h"

namespace nacre::speculation {
namespace {

absl::Status MissingFile(const PolicySpec& spec) {
  return absl::FailedPreconditionError(
      absl::StrCat("length policy ", spec.name(),
                   " needs a calibration file, which this draft worker does "
                   "not have (--policy-file ",
                   spec.name(), "=DIR)"));
}

absl::Status CheckHidden(const PolicySpec& spec, size_t size, int hidden_size) {
  if (static_cast<int>(size) == hidden_size) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("length policy ", spec.name(),
                   ": its file is for hidden "
                   "states of ",
                   size, " values, the draft's have ", hidden_size));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DraftLength>> MakePolicy(const PolicySpec& spec,
                                                        PolicyInputs inputs) {
  const PolicyCalibration* file = inputs.file;
  const PolicySpec* defaults = file == nullptr ? nullptr : &file->defaults;
  NACRE_CHECK(defaults == nullptr || defaults->kind() == spec.kind(),
              "the calibration of another policy");
  const auto value = [&](absl::string_view key) {
    return spec.Value(key, defaults);
  };
  std::unique_ptr<LengthPolicy> policy;
  int max_length = kMaxWindow;
  switch (spec.kind()) {
    case PolicyKind::kConstant:
    case PolicyKind::kLoad:
      if (!spec.has_own_rule()) return nullptr;
      policy = MakeConstantPolicy(static_cast<int>(value("n")));
      return std::make_unique<DraftLength>(std::move(policy), max_length);
    case PolicyKind::kOptimalStatic: {
      absl::optional<double> gamma = spec.Given("gamma");
      if (!gamma.has_value() && file != nullptr) {
        gamma = defaults->Given("gamma");
      }
      if (!gamma.has_value()) return MissingFile(spec);
      policy = MakeConstantPolicy(static_cast<int>(*gamma));
      return std::make_unique<DraftLength>(std::move(policy), max_length);
    }
    case PolicyKind::kHeuristic:
      policy = MakeHeuristicPolicy(static_cast<int>(value("start")),
                                   static_cast<int>(value("max")));
      break;
    case PolicyKind::kConfidence:
      policy = MakeConfidencePolicy(value("threshold"));
      break;
    case PolicyKind::kSvip:
      policy = MakeSvipPolicy(value("c"), value("h"));
      break;
    case PolicyKind::kBetaTs:
      policy = MakeBetaTsPolicy(
          {value("alpha0"), value("beta0"),
           value("update") == 0.0 ? BetaUpdate::kPaper : BetaUpdate::kBernoulli,
           inputs.seed});
      break;
    case PolicyKind::kCaliTs: {
      const CaliTsScorer* model =
          file == nullptr || !file->cali_ts || !inputs.has_target_hidden
              ? nullptr
              : &*file->cali_ts;
      if (model != nullptr) {
        if (absl::Status status =
                CheckHidden(spec, static_cast<size_t>(model->draft_size()),
                            inputs.hidden_size);
            !status.ok()) {
          return status;
        }
      }
      policy =
          MakeCaliTsPolicy(model, {value("sigma-model"), value("sigma-sample"),
                                   value("theta0"), inputs.seed});
      break;
    }
    case PolicyKind::kDisco:
      if (file == nullptr || !file->disco) return MissingFile(spec);
      policy = MakeDiscoPolicy(&*file->disco, value("threshold"));
      break;
    case PolicyKind::kSpecDecPlusPlus:
      if (file == nullptr || !file->head) return MissingFile(spec);
      if (absl::Status status =
              CheckHidden(spec, file->head->size(), inputs.hidden_size);
          !status.ok()) {
        return status;
      }
      policy = MakeSpecDecPlusPlusPolicy(
          &*file->head, {value("threshold"), static_cast<int>(value("min"))});
      break;
    case PolicyKind::kOracle:
      policy = MakeOraclePolicy(std::move(inputs.oracle_ids));
      break;
  }
  max_length = static_cast<int>(value("max"));
  return std::make_unique<DraftLength>(std::move(policy), max_length);
}

}  // namespace nacre::speculation
