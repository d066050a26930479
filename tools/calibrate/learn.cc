#include "tools/calibrate/learn.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "tools/calibrate/classifier_metrics.h"
#include "tools/calibrate/head_network.h"
#include "tools/calibrate/trainer.h"

namespace nacre::tools {
namespace {

using Json = nlohmann::ordered_json;
using speculation::PolicyKind;

// The examples of the prompts of each part.
template <typename Example>
struct Parts {
  std::vector<Example> training;
  std::vector<Example> validation;
  std::vector<Example> test;
};

template <typename MakeExamples>
auto PartsOf(const PromptSplit& split, const MakeExamples& examples_of) {
  using Example = typename decltype(examples_of(split.test))::value_type;
  return Parts<Example>{examples_of(split.training),
                        examples_of(split.validation), examples_of(split.test)};
}

Json MetricsJson(const ClassifierMetrics& metrics) {
  return {{"tokens", metrics.count},
          {"accepted_share", metrics.accepted_share},
          {"f1", metrics.f1},
          {"f1_of_all", metrics.f1_of_all},
          {"precision", metrics.precision},
          {"recall", metrics.recall},
          {"calibration_error", metrics.calibration_error},
          {"loss", metrics.loss}};
}

// What is said of the test prompts.
void Report(const ClassifierMetrics& metrics, Learnt* learnt) {
  absl::StrAppendFormat(
      &learnt->summary,
      "on %d test tokens, %.1f %% of them accepted: F1 %.3f (%.3f where all "
      "are said to be accepted), calibration error %.3f, loss %.4f\n",
      metrics.count, 100.0 * metrics.accepted_share, metrics.f1,
      metrics.f1_of_all, metrics.calibration_error, metrics.loss);
  learnt->report["test"] = MetricsJson(metrics);
}

// What is said of the training.
template <typename Example>
void Report(const TrainingCourse& course, const Recording& recording,
            const Parts<Example>& parts, Learnt* learnt) {
  learnt->summary = absl::StrFormat(
      "trained on %d tokens of %d recorded, %d epochs, best after %d: loss "
      "%.4f, on validation %.4f\n",
      parts.training.size(), recording.recorded(), course.epochs,
      course.best_epoch, course.training_loss, course.validation_loss);
  learnt->report = {{"recorded_tokens", recording.recorded()},
                    {"answer_tokens", recording.wanted()},
                    {"training_tokens", parts.training.size()},
                    {"validation_tokens", parts.validation.size()},
                    {"epochs", course.best_epoch},
                    {"training_loss", course.training_loss},
                    {"validation_loss", course.validation_loss}};
}

}  // namespace

absl::StatusOr<Learnt> Learn(PolicyKind kind, const Recording& recording,
                             const PromptSplit& split,
                             const TrainingOptions& options) {
  Learnt learnt;
  if (kind == PolicyKind::kDisco) {
    const auto parts = PartsOf(split, [&](const std::vector<int>& prompts) {
      return ExamplesOf(recording.TokensOf(prompts));
    });
    NACRE_ASSIGN_OR_RETURN(
        const auto trained,
        TrainDisco(parts.training, parts.validation, options));
    Report(trained.course, recording, parts, &learnt);
    Report(MeasureNetwork(trained.weights, parts.test), &learnt);
    learnt.weights = trained.weights;
    return learnt;
  }
  if (kind == PolicyKind::kCaliTs) {
    const auto parts = PartsOf(split, [&](const std::vector<int>& prompts) {
      return CaliTsExamplesOf(
          recording.StepsOf(prompts, speculation::CaliTsModel::kSteps));
    });
    NACRE_ASSIGN_OR_RETURN(
        const auto trained,
        TrainCaliTs(parts.training, parts.validation, options));
    Report(trained.course, recording, parts, &learnt);
    Report(MeasureNetwork(trained.weights, parts.test), &learnt);
    learnt.weights = trained.weights;
    return learnt;
  }
  NACRE_CHECK(kind == PolicyKind::kSpecDecPlusPlus,
              "a policy that nothing is learnt for");
  const auto parts = PartsOf(split, [&](const std::vector<int>& prompts) {
    return StateExamplesOf(recording.TokensOf(prompts));
  });
  NACRE_ASSIGN_OR_RETURN(const auto trained,
                         TrainHead(parts.training, parts.validation, options));
  Report(trained.course, recording, parts, &learnt);
  Report(MeasureNetwork(trained.weights, 1.0, parts.test), &learnt);
  // The weight makes it say less than happens; how much it knows shows without.
  const ClassifierMetrics unweighted =
      MeasureNetwork(trained.weights, kRejectWeight, parts.test);
  absl::StrAppendFormat(
      &learnt.summary,
      "with the weight of rejected tokens undone: F1 %.3f, calibration error "
      "%.3f, loss %.4f\n",
      unweighted.f1, unweighted.calibration_error, unweighted.loss);
  learnt.report["test_unweighted"] = MetricsJson(unweighted);
  learnt.weights = trained.weights;
  return learnt;
}

}  // namespace nacre::tools
