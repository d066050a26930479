#include "tools/calibrate/record.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tools/calibrate/feature_reader.h"
#include "tools/calibrate/hidden_reader.h"
#include "tools/calibrate/measure.h"
#include "tools/calibrate/workers.h"
#include "tools/temporary_folder.h"

namespace nacre::tools {
namespace {

Recording::Options OptionsOf(const CalibrationPlan& plan) {
  Recording::Options options;
  options.needs_states = plan.needs_states();
  for (const Prompt& prompt : plan.prompts) {
    options.max_tokens.push_back(static_cast<int>(*prompt.max_tokens));
  }
  return options;
}

// One cluster, which has ended when its files are read.
absl::Status Run(const CalibrationPlan& plan, const std::vector<int>& prompts,
                 int window, const Terminal& terminal, Recording* recording) {
  const TemporaryFolder folder;
  const std::string features = folder.path() + "/features.jsonl";
  const std::string hidden = folder.path() + "/hidden";
  Cluster::Options options = plan.cluster;
  options.draft_args.push_back(absl::StrCat("--record-features=", features));
  if (plan.needs_states()) {
    options.draft_args.push_back(absl::StrCat("--record-hidden=", hidden));
  }
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<Workers> workers,
                         Workers::Start(options, terminal));
  using Answers = std::map<int, std::vector<int32_t>>;
  NACRE_ASSIGN_OR_RETURN(
      const Answers answers,
      workers->Do([&](GenerationClient* client, const ProgressLine& progress) {
        return RunRecordingRequests(plan, prompts, window, client, progress);
      }));
  workers->Stop();
  NACRE_ASSIGN_OR_RETURN(const std::string text, ReadFile(features));
  NACRE_ASSIGN_OR_RETURN(const std::vector<FeatureLine> lines,
                         ParseFeatures(features, text));
  std::optional<HiddenStates> states;
  if (plan.needs_states()) {
    NACRE_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(hidden));
    NACRE_ASSIGN_OR_RETURN(states, HiddenStates::Parse(hidden, bytes));
  }
  return recording->Add(lines, states.has_value() ? &*states : nullptr,
                        answers);
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
    const size_t before = recording.recorded();
    NACRE_RETURN_IF_ERROR(
        Run(plan, prompts, RecordingWindow(plan, run), terminal, &recording));
    if (recording.recorded() == before) break;
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
