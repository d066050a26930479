#include "tools/calibrate/calibration.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "speculation/law.h"
#include "speculation/pipeline.h"
#include "tools/calibrate/classifier_metrics.h"
#include "tools/calibrate/feature_reader.h"
#include "tools/calibrate/measure.h"
#include "tools/calibrate/policy_writer.h"
#include "tools/command_cluster.h"
#include "tools/interrupt.h"
#include "tools/temporary_folder.h"
#include "tools/throttled_progress.h"

namespace nacre::tools {
namespace {

using Json = nlohmann::ordered_json;
using speculation::PolicyKind;

// The chunk whose acceptance and cost optimal-static starts from.
constexpr int kProbeWindow = 5;
// Lengths to each side of the law's that are measured too.
constexpr int kGammaReach = 2;

// One cluster and its client. Ctrl-C cancels what is asked of it.
class Workers {
 public:
  static absl::StatusOr<std::unique_ptr<Workers>> Start(
      Cluster::Options options, const Terminal& terminal) {
    auto workers = std::unique_ptr<Workers>(new Workers(terminal));
    NACRE_ASSIGN_OR_RETURN(
        workers->cluster_,
        StartCommandCluster(std::move(options), workers->logs_.path(),
                            terminal));
    workers->client_ =
        std::make_unique<GenerationClient>(workers->cluster_->address());
    return workers;
  }

  absl::StatusOr<uint64_t> Record(const CalibrationPlan& plan) {
    return Watched([&](const ProgressLine& progress) {
      return RunRecordingRequests(plan, client_.get(), progress);
    });
  }

  absl::StatusOr<std::vector<MethodSummary>> Measure(
      const CalibrationPlan& plan, const std::vector<int>& prompts,
      const std::vector<std::string>& policies) {
    return Watched([&](const ProgressLine& progress) {
      return MeasurePolicies(plan, prompts, policies, client_.get(), progress);
    });
  }

  // Until all processes have ended.
  void Stop() { cluster_->Drain(); }

 private:
  explicit Workers(const Terminal& terminal) : terminal_(terminal) {}

  template <typename Work>
  std::invoke_result_t<Work, const ProgressLine&> Watched(const Work& work) {
    ThrottledProgress throttled(terminal_);
    const ProgressLine progress = [&throttled](const std::string& line) {
      throttled(line);
    };
    InterruptWatcher watcher([this] { client_->CancelAll(); });
    auto result = work(progress);
    terminal_.EndProgress();
    return result;
  }

  const Terminal& terminal_;
  const TemporaryFolder logs_;
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<GenerationClient> client_;
};

Json MeasuredJson(const std::vector<MethodSummary>& summaries) {
  Json json = Json::array();
  for (const MethodSummary& summary : summaries) {
    json.push_back({{"method", summary.method.name},
                    {"tokens_per_second", summary.tokens_per_second},
                    {"speedup", summary.speedup.value_or(0.0)},
                    {"mean_accepted_length", summary.mean_accepted_length}});
  }
  return json;
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

class Calibration {
 public:
  Calibration(const CalibrationPlan& plan, const Terminal& terminal)
      : plan_(plan), terminal_(terminal) {
    description_.policy = speculation::InfoOf(plan.kind).name;
    description_.calibration = {
        {"prompts", plan.prompts.size()},
        {"temperature", plan.request.sampling().temperature()},
        {"seed", plan.request.sampling().seed()}};
  }

  absl::Status Run() {
    NACRE_ASSIGN_OR_RETURN(description_.target_fingerprint,
                           FingerprintOf(plan_.cluster.target_model));
    NACRE_ASSIGN_OR_RETURN(description_.draft_fingerprint,
                           FingerprintOf(plan_.cluster.draft_model));
    Cluster::Options options = plan_.cluster;
    if (plan_.kind == PolicyKind::kDisco) {
      NACRE_RETURN_IF_ERROR(Learn());
      // The workers that measure load what has been learnt.
      NACRE_RETURN_IF_ERROR(
          WritePolicyFolder(staged_.path(), description_, weights_));
      options.policy_files = {absl::StrCat("disco=", staged_.path())};
    }
    NACRE_ASSIGN_OR_RETURN(workers_, Workers::Start(options, terminal_));
    std::string tuned;
    if (plan_.kind == PolicyKind::kOptimalStatic) {
      NACRE_ASSIGN_OR_RETURN(tuned, TuneGamma());
    } else {
      NACRE_ASSIGN_OR_RETURN(tuned, TuneThresholdAndCap());
    }
    NACRE_ASSIGN_OR_RETURN(
        const std::vector<MethodSummary> result,
        Measure("result", plan_.TestPrompts(), {"constant", tuned}));
    description_.calibration["result"] = MeasuredJson(result);
    workers_->Stop();
    NACRE_RETURN_IF_ERROR(WritePolicyFolder(plan_.out, description_, weights_));
    terminal_.out << plan_.out << ": " << tuned << std::endl;
    return absl::OkStatus();
  }

 private:
  // Lines of the recording cluster, which has ended when they are read.
  absl::StatusOr<std::vector<FeatureLine>> Record() const {
    const TemporaryFolder folder;
    const std::string file = folder.path() + "/features.jsonl";
    Cluster::Options options = plan_.cluster;
    options.draft_args.push_back(absl::StrCat("--record-features=", file));
    NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<Workers> workers,
                           Workers::Start(options, terminal_));
    NACRE_ASSIGN_OR_RETURN(const uint64_t verified, workers->Record(plan_));
    workers->Stop();
    NACRE_ASSIGN_OR_RETURN(const std::string content, ReadFile(file));
    NACRE_ASSIGN_OR_RETURN(std::vector<FeatureLine> lines,
                           ParseFeatures(file, content));
    // The last verdict of a request may find its draft closed. More is missing
    // where the disk was full or the worker died.
    if (lines.size() < verified / 2) {
      return absl::DataLossError(absl::StrCat("the draft worker recorded ",
                                              lines.size(), " of ", verified,
                                              " verified tokens"));
    }
    return lines;
  }

  absl::Status Learn() {
    NACRE_ASSIGN_OR_RETURN(const std::vector<FeatureLine> lines, Record());
    const PromptSplit& split = plan_.split;
    const std::vector<Example> training = ExamplesOf(lines, split.training);
    const std::vector<Example> validation = ExamplesOf(lines, split.validation);
    const std::vector<Example> test = ExamplesOf(lines, split.test);
    NACRE_ASSIGN_OR_RETURN(const TrainedNetwork trained,
                           Train(training, validation));
    weights_ = trained.weights;
    const ClassifierMetrics metrics = MeasureNetwork(*weights_, test);
    terminal_.out << absl::StrFormat(
        "trained on %d tokens of %d prompts, %d epochs, best after %d: loss "
        "%.4f, on validation %.4f\n"
        "on %d test tokens, %.1f %% of them accepted: F1 %.3f (%.3f where all "
        "are said to be accepted), calibration error %.3f, loss %.4f\n",
        training.size(), split.training.size(), trained.epochs,
        trained.best_epoch, trained.training_loss, trained.validation_loss,
        metrics.count, 100.0 * metrics.accepted_share, metrics.f1,
        metrics.f1_of_all, metrics.calibration_error, metrics.loss);
    description_.calibration["training_tokens"] = training.size();
    description_.calibration["validation_tokens"] = validation.size();
    description_.calibration["epochs"] = trained.best_epoch;
    description_.calibration["training_loss"] = trained.training_loss;
    description_.calibration["validation_loss"] = trained.validation_loss;
    description_.calibration["test"] = MetricsJson(metrics);
    return absl::OkStatus();
  }

  absl::StatusOr<TrainedNetwork> Train(
      const std::vector<Example>& training,
      const std::vector<Example>& validation) const {
    std::atomic<bool> interrupted = false;
    ThrottledProgress progress(terminal_);
    TrainingOptions options = plan_.training;
    options.progress = [&](int epoch, double loss, double validation_loss) {
      progress(
          absl::StrFormat("training, epoch %d: loss %.4f, on validation "
                          "%.4f",
                          epoch, loss, validation_loss));
      return !interrupted;
    };
    InterruptWatcher watcher([&interrupted] { interrupted = true; });
    absl::StatusOr<TrainedNetwork> trained =
        TrainNetwork(training, validation, options);
    terminal_.EndProgress();
    return trained;
  }

  // Measures, prints the table and keeps it under `stage`.
  absl::StatusOr<std::vector<MethodSummary>> Measure(
      const std::string& stage, const std::vector<int>& prompts,
      const std::vector<std::string>& policies) {
    NACRE_ASSIGN_OR_RETURN(std::vector<MethodSummary> summaries,
                           workers_->Measure(plan_, prompts, policies));
    terminal_.out << stage << ", " << prompts.size() << " prompts x "
                  << plan_.repeat << ":\n"
                  << SummaryTable(summaries) << std::flush;
    return summaries;
  }

  // The fastest of the policies; what was measured is kept.
  absl::StatusOr<int> Choose(const std::string& stage,
                             const std::vector<std::string>& policies) {
    NACRE_ASSIGN_OR_RETURN(const std::vector<MethodSummary> summaries,
                           Measure(stage, plan_.TuningPrompts(), policies));
    description_.calibration["tuning"][stage] = MeasuredJson(summaries);
    return FastestPolicy(summaries);
  }

  // The threshold first, with the largest cap, then the cap. Each is the
  // fastest that real requests have shown: no model stands between.
  absl::StatusOr<std::string> TuneThresholdAndCap() {
    const int largest = *std::max_element(plan_.caps.begin(), plan_.caps.end());
    std::vector<std::string> policies;
    for (const double threshold : plan_.thresholds) {
      policies.push_back(PolicyText(plan_.kind, threshold, largest));
    }
    NACRE_ASSIGN_OR_RETURN(const int best, Choose("thresholds", policies));
    const double threshold = plan_.thresholds[static_cast<size_t>(best)];
    const auto [least, most] =
        std::minmax_element(plan_.thresholds.begin(), plan_.thresholds.end());
    if (*least < *most && (threshold == *least || threshold == *most)) {
      terminal_.out << "the fastest threshold, " << threshold
                    << ", is at an end of --thresholds: there may be a better "
                       "one beyond\n";
    }
    policies.clear();
    for (const int cap : plan_.caps) {
      policies.push_back(PolicyText(plan_.kind, threshold, cap));
    }
    NACRE_ASSIGN_OR_RETURN(const int best_cap, Choose("caps", policies));
    const int cap = plan_.caps[static_cast<size_t>(best_cap)];
    const char* key = plan_.kind == PolicyKind::kSvip ? "h" : "threshold";
    description_.parameters = {{key, threshold}, {"max", cap}};
    return policies[static_cast<size_t>(best_cap)];
  }

  // Acceptance and cost ratio as measured, the law's best length for them, and
  // the fastest of that and its neighbours.
  absl::StatusOr<std::string> TuneGamma() {
    NACRE_ASSIGN_OR_RETURN(
        const std::vector<MethodSummary> probe,
        Measure("probe", plan_.TuningPrompts(),
                {absl::StrCat("constant:n=", kProbeWindow)}));
    const double alpha = probe[1].acceptance_rate;
    const double cost_ratio = probe[1].cost_ratio;
    if (!(cost_ratio > 0.0) || !(alpha > 0.0)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the probe gave an acceptance of ", alpha, " and a cost ratio of ",
          cost_ratio, ": both must be > 0 to compute a best length"));
    }
    const int law =
        speculation::BestSdWindow(alpha, cost_ratio, speculation::kMaxWindow);
    terminal_.out << absl::StrFormat(
        "acceptance %.3f, cost ratio %.2f: the law says gamma %d\n", alpha,
        cost_ratio, law);
    std::vector<int> gammas;
    std::vector<std::string> policies;
    for (int gamma = std::max(1, law - kGammaReach);
         gamma <= std::min(speculation::kMaxWindow, law + kGammaReach);
         ++gamma) {
      gammas.push_back(gamma);
      policies.push_back(absl::StrCat("optimal-static:gamma=", gamma));
    }
    NACRE_ASSIGN_OR_RETURN(const int best, Choose("gammas", policies));
    description_.calibration["acceptance"] = alpha;
    description_.calibration["cost_ratio"] = cost_ratio;
    description_.calibration["law_gamma"] = law;
    description_.parameters = {{"gamma", gammas[static_cast<size_t>(best)]}};
    return policies[static_cast<size_t>(best)];
  }

  const CalibrationPlan& plan_;
  const Terminal& terminal_;
  const TemporaryFolder staged_;
  PolicyDescription description_;
  std::optional<speculation::DiscoWeights> weights_;
  std::unique_ptr<Workers> workers_;
};

}  // namespace

absl::Status Calibrate(const CalibrationPlan& plan, const Terminal& terminal) {
  return Calibration(plan, terminal).Run();
}

}  // namespace nacre::tools
