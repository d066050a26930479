#include "tools/calibrate/record.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "tools/calibrate/feature_reader.h"
#include "tools/calibrate/hidden_reader.h"
#include "tools/calibrate/measure.h"
#include "tools/calibrate/workers.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::tools {
namespace {

Recording::Options OptionsOf(const CalibrationPlan& plan) {
  Recording::Options options;
  options.needs = plan.state_needs();
  for (const Prompt& prompt : plan.prompts) {
    options.max_tokens.push_back(static_cast<int>(*prompt.max_tokens));
  }
  return options;
}

// What one worker records.
struct Files {
  explicit Files(const std::string& stem)
      : features(stem + ".jsonl"), hidden(stem + ".states") {}

  void AddFlags(bool with_states, std::vector<std::string>* args) const {
    args->push_back(absl::StrCat("--record-features=", features));
    if (with_states) args->push_back(absl::StrCat("--record-hidden=", hidden));
  }
  absl::StatusOr<HiddenStates> ReadStates() const {
    NACRE_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(hidden));
    return HiddenStates::Parse(hidden, bytes);
  }

  std::string features;
  std::string hidden;
};

// One cluster, which has ended when its files are read.
absl::Status Run(const CalibrationPlan& plan, const std::vector<int>& prompts,
                 int window, const Terminal& terminal, Recording* recording) {
  const TemporaryFolder folder;
  const Files draft(folder.path() + "/draft");
  const Files target(folder.path() + "/target");
  const bool with_states = plan.state_needs() != StateNeeds::kNone;
  const bool with_target = plan.state_needs() == StateNeeds::kRowAndTarget;
  Cluster::Options options = plan.cluster;
  draft.AddFlags(with_states, &options.more_args.draft);
  if (with_target) target.AddFlags(true, &options.more_args.target);
  // A late draft, on a busy machine, must leave no gap.
  options.more_args.target.push_back("--gate-timeouts=off");
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<Workers> workers,
                         Workers::Start(options, terminal));
  using Answers = std::map<int, std::vector<int32_t>>;
  NACRE_ASSIGN_OR_RETURN(
      const Answers answers,
      workers->Do([&](GenerationClient* client, const ProgressLine& progress) {
        return RunRecordingRequests(plan, prompts, window, client, progress);
      }));
  workers->Stop();
  NACRE_ASSIGN_OR_RETURN(const std::string text, ReadFile(draft.features));
  NACRE_ASSIGN_OR_RETURN(const std::vector<FeatureLine> lines,
                         ParseFeatures(draft.features, text));
  std::optional<HiddenStates> states;
  if (with_states) {
    NACRE_ASSIGN_OR_RETURN(states, draft.ReadStates());
  }
  if (!with_target) {
    return recording->Add(lines, states.has_value() ? &*states : nullptr,
                          answers);
  }
  NACRE_ASSIGN_OR_RETURN(const std::string target_text,
                         ReadFile(target.features));
  NACRE_ASSIGN_OR_RETURN(const std::vector<StateLine> target_lines,
                         ParseStateLines(target.features, target_text));
  NACRE_ASSIGN_OR_RETURN(const HiddenStates target_states, target.ReadStates());
  return recording->Add(lines, &*states, answers,
                        {target_lines, &target_states});
}

}  // namespace

int RecordingWindow(const CalibrationPlan& plan, int run) {
  return plan.window > kMaxRecordingRuns ? plan.window - run
                                         : plan.window + run;
}

absl::StatusOr<Recording> RecordAnswers(const CalibrationPlan& plan,
                                        const Terminal& terminal) {
  Recording recording(OptionsOf(plan));
  std::vector<int> prompts = recording.Incomplete();
  for (int run = 0; run < kMaxRecordingRuns && !prompts.empty(); ++run) {
    NACRE_RETURN_IF_ERROR(
        Run(plan, prompts, RecordingWindow(plan, run), terminal, &recording));
    if (recording.recorded() == 0) break;
    prompts = recording.Incomplete();
  }
  const size_t recorded = recording.recorded();
  const size_t wanted = recording.wanted();
  if (2 * recorded < wanted) {
    return absl::DataLossError(
        absl::StrCat("of ", wanted,
                     " tokens of the answers the draft worker "
                     "has recorded ",
                     recorded));
  }
  if (recorded < wanted) {
    terminal.out << recorded << " of " << wanted
                 << " tokens of the answers are recorded: another run may "
                    "record others\n";
  }
  return recording;
}

}  // namespace nacre::tools
