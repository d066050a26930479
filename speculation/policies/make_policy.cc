#include "speculation/policies/make_policy.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
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

// What the spec gives, else its file, else the kind's default.
class Values {
 public:
  Values(const PolicySpec& spec, const PolicyCalibration* file)
      : spec_(spec), defaults_(file == nullptr ? nullptr : &file->defaults) {
    NACRE_CHECK(defaults_ == nullptr || defaults_->kind() == spec.kind(),
                "the calibration of another policy");
  }

  double operator()(absl::string_view key) const {
    return spec_.Value(key, defaults_);
  }
  int Whole(absl::string_view key) const {
    return static_cast<int>((*this)(key));
  }
  // Of a key that has no default.
  absl::optional<double> Given(absl::string_view key) const {
    const absl::optional<double> given = spec_.Given(key);
    return given.has_value() || defaults_ == nullptr ? given
                                                     : defaults_->Given(key);
  }

 private:
  const PolicySpec& spec_;
  const PolicySpec* const defaults_;
};

using Policy = absl::StatusOr<std::unique_ptr<LengthPolicy>>;

Policy MakeOptimalStatic(const PolicySpec& spec, const Values& value) {
  const absl::optional<double> gamma = value.Given("gamma");
  if (!gamma.has_value()) return MissingFile(spec);
  return MakeConstantPolicy(static_cast<int>(*gamma));
}

Policy MakeCaliTs(const PolicySpec& spec, const PolicyInputs& inputs,
                  const Values& value) {
  const PolicyCalibration* const file = inputs.file;
  const CaliTsScorer* const model =
      file == nullptr || !file->cali_ts || !inputs.has_target_hidden
          ? nullptr
          : &*file->cali_ts;
  if (model != nullptr) {
    NACRE_RETURN_IF_ERROR(CheckHidden(
        spec, static_cast<size_t>(model->draft_size()), inputs.hidden_size));
  }
  return MakeCaliTsPolicy(model, {value("sigma-model"), value("sigma-sample"),
                                  value("theta0"), inputs.seed});
}

Policy MakeSpecDecPlusPlus(const PolicySpec& spec, const PolicyInputs& inputs,
                           const Values& value) {
  const PolicyCalibration* const file = inputs.file;
  if (file == nullptr || !file->head) return MissingFile(spec);
  NACRE_RETURN_IF_ERROR(
      CheckHidden(spec, file->head->size(), inputs.hidden_size));
  return MakeSpecDecPlusPlusPolicy(&*file->head,
                                   {value("threshold"), value.Whole("min")});
}

// Null where the plan decides alone.
Policy MakeLengthPolicy(const PolicySpec& spec, PolicyInputs inputs,
                        const Values& value) {
  switch (spec.kind()) {
    case PolicyKind::kConstant:
    case PolicyKind::kLoad:
      if (!spec.has_own_rule()) return nullptr;
      return MakeConstantPolicy(value.Whole("n"));
    case PolicyKind::kOptimalStatic:
      return MakeOptimalStatic(spec, value);
    case PolicyKind::kHeuristic:
      return MakeHeuristicPolicy(value.Whole("start"), value.Whole("max"));
    case PolicyKind::kConfidence:
      return MakeConfidencePolicy(value("threshold"));
    case PolicyKind::kSvip:
      return MakeSvipPolicy(value("c"), value("h"));
    case PolicyKind::kBetaTs:
      return MakeBetaTsPolicy(
          {value("alpha0"), value("beta0"),
           value("update") == 0.0 ? BetaUpdate::kPaper : BetaUpdate::kBernoulli,
           inputs.seed});
    case PolicyKind::kCaliTs:
      return MakeCaliTs(spec, inputs, value);
    case PolicyKind::kDisco:
      if (inputs.file == nullptr || !inputs.file->disco) {
        return MissingFile(spec);
      }
      return MakeDiscoPolicy(&*inputs.file->disco, value("threshold"));
    case PolicyKind::kSpecDecPlusPlus:
      return MakeSpecDecPlusPlus(spec, inputs, value);
    case PolicyKind::kOracle:
      return MakeOraclePolicy(std::move(inputs.oracle_ids));
  }
  NACRE_CHECK(false, "a length policy of no kind");
  return nullptr;
}

bool HasOwnMax(PolicyKind kind) {
  return kind != PolicyKind::kConstant && kind != PolicyKind::kLoad &&
         kind != PolicyKind::kOptimalStatic;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DraftLength>> MakePolicy(const PolicySpec& spec,
                                                        PolicyInputs inputs) {
  const Values value(spec, inputs.file);
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<LengthPolicy> policy,
                         MakeLengthPolicy(spec, std::move(inputs), value));
  if (policy == nullptr) return nullptr;
  return std::make_unique<DraftLength>(
      std::move(policy),
      HasOwnMax(spec.kind()) ? value.Whole("max") : kMaxWindow);
}

}  // namespace nacre::speculation
