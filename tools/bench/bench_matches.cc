#include "tools/bench/bench_matches.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "tools/bench/match_recorder.h"

namespace nacre::tools {
namespace {

// What has no verdict in a run of matches recurs every window + 1 tokens. In
// all of these windows at once that is only every 360,360 (longer than any
// answer). Windows that are long enough for most runs and hardly longer come
// first.
constexpr uint32_t kWindows[] = {8, 7, 6, 4, 10, 12};
// Most turns of all windows: a draft that a busy machine holds up misses others
// in each.
constexpr int kMaxTurns = 50;

const BenchAnswer* AnswerTo(const BenchResult& result, int prompt) {
  for (const BenchAnswer& answer : result.answers) {
    if (answer.prompt == prompt) return &answer;
  }
  return nullptr;
}

// The same answer, as far as it goes.
absl::Status CheckSame(const v1::Complete& before, const v1::Complete& now,
                       int num_tokens) {
  for (int i = 0; i < num_tokens; ++i) {
    if (i < now.token_ids_size() && now.token_ids(i) == before.token_ids(i)) {
      continue;
    }
    return absl::DataLossError(absl::StrCat(
        "recording the matches: token ", i, " is ",
        i < now.token_ids_size() ? absl::StrCat("id ", now.token_ids(i))
                                 : std::string("missing"),
        ", it was id ", before.token_ids(i)));
  }
  return absl::OkStatus();
}

class PromptRecording {
 public:
  PromptRecording(const BenchPlan& plan, int prompt, const v1::Complete& answer,
                  uint32_t context_length)
      : plan_(plan), prompt_(prompt), answer_(answer) {
    const uint32_t prompt_tokens = answer.usage().prompt_tokens();
    const uint32_t num_tokens = static_cast<uint32_t>(answer.token_ids_size());
    const bool room =
        context_length == 0 || prompt_tokens + num_tokens < context_length;
    max_tokens_ = num_tokens + (room ? 1 : 0);
    num_recorded_ = static_cast<int>(max_tokens_) - 1;
  }

  absl::StatusOr<simulation::MatchTrace> Record(GenerationClient* client) {
    const auto first = answer_.token_ids().begin();
    MatchRecorder recorder(static_cast<int>(answer_.usage().prompt_tokens()),
                           {first, first + num_recorded_});
    int runs = 0;
    bool helps = true;
    for (int turn = 0; turn < kMaxTurns && helps; ++turn) {
      const int open_before = recorder.num_open();
      held_up_ = false;
      for (const uint32_t window : kWindows) {
        if (recorder.num_open() == 0) return recorder.matches();
        const BenchMethod sd = {absl::StrCat("sd:", window), v1::METHOD_SD,
                                window, /*policy=*/"constant"};
        ++runs;
        const absl::Status status = Ask(sd, client, &recorder);
        if (!status.ok()) return RequestError(status, plan_, sd, prompt_);
      }
      helps = recorder.num_open() < open_before || held_up_;
    }
    if (const std::optional<int> open = recorder.first_open()) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "prompt \"%s\": token %d of %d was compared with no draft token in "
          "any of %d runs: is there a draft, and room in its context?",
          plan_.prompts[prompt_].id, *open, answer_.token_ids_size(), runs));
    }
    return recorder.matches();
  }

 private:
  absl::Status Ask(const BenchMethod& sd, GenerationClient* client,
                   MatchRecorder* recorder) {
    v1::GenerateRequest request = BenchRequest(plan_, sd, prompt_);
    request.mutable_stop()->set_max_tokens(max_tokens_);
    request.mutable_output()->set_trace(true);
    NACRE_ASSIGN_OR_RETURN(
        const v1::Complete complete,
        client->Generate(request, plan_.timeout, [](const v1::Chunk&) {}));
    NACRE_RETURN_IF_ERROR(
        CheckSame(answer_, complete, answer_.token_ids_size()));
    held_up_ |= complete.speculation().degraded_rounds() > 0 &&
                complete.speculation().verified() > 0;
    return recorder->Add(complete.trace());
  }

  const BenchPlan& plan_;
  const int prompt_;
  const v1::Complete& answer_;
  uint32_t max_tokens_ = 0;
  int num_recorded_ = 0;
  // A draft that is there came too late for some steps of this turn.
  bool held_up_ = false;
};

}  // namespace

absl::StatusOr<std::vector<simulation::MatchTrace>> RecordMatches(
    const BenchPlan& plan, const BenchResult& result, uint32_t context_length,
    GenerationClient* client,
    const std::function<void(const std::string& line)>& progress) {
  const int num_prompts = static_cast<int>(plan.prompts.size());
  std::vector<simulation::MatchTrace> matches(num_prompts);
  for (int prompt = 0; prompt < num_prompts; ++prompt) {
    const BenchAnswer* answer = AnswerTo(result, prompt);
    if (answer == nullptr || answer->complete.token_ids_size() == 0) continue;
    progress(absl::StrFormat("recording matches, prompt %d of %d", prompt + 1,
                             num_prompts));
    PromptRecording recording(plan, prompt, answer->complete, context_length);
    NACRE_ASSIGN_OR_RETURN(matches[prompt], recording.Record(client));
  }
  return matches;
}

}  // namespace nacre::tools
