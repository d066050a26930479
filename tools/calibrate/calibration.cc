#include "tools/calibrate/calibration.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "speculation/law.h"
#include "speculation/pipeline.h"
#include "tools/calibrate/entropy_table.h"
#include "tools/calibrate/learn.h"
#include "tools/calibrate/measure.h"
#include "tools/calibrate/policy_writer.h"
#include "tools/calibrate/record.h"
#include "tools/calibrate/workers.h"
#include "tools/cluster/temporary_folder.h"
#include "tools/interrupt.h"
#include "tools/throttled_progress.h"

namespace nacre::tools {
namespace {

using Json = nlohmann::ordered_json;
using speculation::PolicyKind;

// The chunk whose acceptance and cost optimal-static starts from.
constexpr int kProbeWindow = 5;
// Lengths to each side of the law's that are measured too.
constexpr int kGammaReach = 2;

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
    if (plan_.is_learned()) {
      NACRE_RETURN_IF_ERROR(RecordAndLearn());
      // The workers that measure load what has been learnt.
      NACRE_RETURN_IF_ERROR(
          WritePolicyFolder(staged_.path(), description_, weights_));
      options.more_args.draft.push_back(absl::StrCat(
          "--policy-file=", description_.policy, "=", staged_.path()));
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
  absl::Status RecordAndLearn() {
    NACRE_ASSIGN_OR_RETURN(const Recording recording,
                           RecordAnswers(plan_, terminal_));
    ReportEntropy(recording);
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
    const absl::StatusOr<Learnt> learnt =
        Learn(plan_.kind, recording, plan_.split, options);
    terminal_.EndProgress();
    if (!learnt.ok()) return learnt.status();
    terminal_.out << learnt->summary << std::flush;
    weights_ = learnt->weights;
    description_.calibration.update(learnt->report);
    return absl::OkStatus();
  }

  // Acceptance by the entropy of the draft's row, of all prompts.
  void ReportEntropy(const Recording& recording) {
    std::vector<int> prompts(plan_.prompts.size());
    std::iota(prompts.begin(), prompts.end(), 0);
    const std::vector<EntropyBin> bins =
        AcceptanceByEntropy(recording.TokensOf(prompts));
    terminal_.out << "accepted by entropy in nats: " << EntropyLine(bins)
                  << std::endl;
    Json& json = description_.calibration["acceptance_by_entropy"];
    for (const EntropyBin& bin : bins) {
      json.push_back({{"below", bin.below},  // null: no bound
                      {"tokens", bin.tokens},
                      {"accepted", bin.accepted}});
    }
  }

  // Measures, prints the table and keeps it under `stage`.
  absl::StatusOr<std::vector<MethodSummary>> Measure(
      const std::string& stage, const std::vector<int>& prompts,
      const std::vector<std::string>& policies) {
    NACRE_ASSIGN_OR_RETURN(std::vector<MethodSummary> summaries,
                           workers_->Do([&](GenerationClient* client,
                                            const ProgressLine& progress) {
                             return MeasurePolicies(plan_, prompts, policies,
                                                    client, progress);
                           }));
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
    policies.reserve(plan_.thresholds.size());
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
    description_.parameters = {{TunedKey(plan_.kind), threshold}, {"max", cap}};
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
  PolicyWeights weights_;
  std::unique_ptr<Workers> workers_;
};

}  // namespace

absl::Status Calibrate(const CalibrationPlan& plan, const Terminal& terminal) {
  return Calibration(plan, terminal).Run();
}

}  // namespace nacre::tools
