// What drafts from suffixes give where the answer is an edited copy of a text
// in the prompt: a target's engine on its own thread, no draft, one request at
// a time, with suffixes ("async") and without ("ar"), in turns.
//
//   bench_copies [--prompts FILE] [--tokenizer DIR] [--count N]
//                [--step-time ROWS:MS,...] [--repetitions N] [--slots N]
//
// A table model says the answers (tests/testing/edited_copies.h). Each step
// takes as long as --step-time says, by waiting. A session has --slots (16) for
// nodes beside the best path. The numbers are the sums of all requests' times,
// from their opening to their last token, medians over the repetitions.
// Requests whose text loops are left out.

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/step_times.h"
#include "model/paced_model.h"
#include "target_worker/target_engine.h"
#include "tests/benchmarks/machine_limits.h"
#include "tests/testing/edited_copies.h"
#include "tests/testing/table_model.h"
#include "tokenizer/tokenizer.h"
#include "worker/engine/engine_thread.h"

namespace nacre::target_worker {
namespace {

using kernels::Median;
using kernels::Seconds;
using kernels::ValueOrExit;
using testing::ReplayedText;

struct Answer {
  double seconds = 0;
  int steps = 0;
  int proposed = 0;
  int accepted = 0;
};

std::unique_ptr<model::LanguageModel> MakeModel(const ReplayedText* text,
                                                int vocab_size,
                                                const StepTimes& times) {
  testing::TableModelOptions options;
  options.vocab_size = vocab_size;
  options.context_length = 8192;
  options.on_row = [text](absl::Span<const int32_t> tokens,
                          std::vector<float>* logits) {
    text->Say(tokens, logits);
  };
  return std::make_unique<model::PacedModel>(
      std::make_unique<testing::TableModel>(std::move(options)), times);
}

// Acknowledges as a coordinator on the same machine does, at once.
class Replayer {
 public:
  Replayer(int vocab_size, int num_slots, const StepTimes& times)
      : num_slots_(num_slots),
        model_(MakeModel(&text_, vocab_size, times)),
        engine_({.model = model_.get(),
                 .send = [this](worker::StreamId,
                                TargetEvents events) { OnEvents(events); }}),
        thread_({.model = model_.get(),
                 .engine = &engine_,
                 .on_failure = kernels::Exit}) {
    ValueOrExit(thread_.WaitForWarmUp());
  }

  Answer Say(const ReplayedText& text, bool from_suffixes) {
    text_ = text;
    said_.assign(text.token_ids.begin(),
                 text.token_ids.begin() + text.prompt_length);
    answer_ = {};
    OpenTarget open;
    open.session_id = ++session_id_;
    open.prompt_length = text.prompt_length;
    open.token_ids = said_;
    open.max_tokens = text.answer_length();
    open.num_slots = num_slots_;
    if (from_suffixes) open.suffixes.emplace();
    const double start = Seconds();
    TargetCommands commands;
    commands.stream = 1;
    commands.open.push_back(std::move(open));
    engine_.Push(std::move(commands));
    std::unique_lock<std::mutex> lock(mutex_);
    closed_.wait(lock, [this] { return is_closed_; });
    is_closed_ = false;
    if (said_ != text.token_ids) {
      kernels::Exit(absl::InternalError("the answer is another one"));
    }
    answer_.seconds = end_ - start;
    return answer_;
  }

 private:
  // On the engine's thread.
  void OnEvents(const TargetEvents& events) {
    for (const auto& failure : events.common.failures) {
      kernels::Exit(failure.status);
    }
    TargetCommands commands;
    commands.stream = 1;
    for (const auto& [id, verdict, logprobs] : events.verdicts) {
      said_.insert(said_.end(), verdict.token_ids.begin(),
                   verdict.token_ids.end());
      ++answer_.steps;
      answer_.proposed += verdict.suffix_proposed;
      answer_.accepted += verdict.suffix_accepted;
      commands.acknowledged.push_back({id, static_cast<int>(said_.size())});
      if (verdict.finish != speculation::FinishReason::kNone) {
        end_ = Seconds();
        commands.close.push_back(id);
      }
    }
    if (!events.verdicts.empty()) engine_.Push(std::move(commands));
    if (events.common.closed.empty()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    is_closed_ = true;
    closed_.notify_one();
  }

  const int num_slots_;
  // Of the request that runs; the engine's thread has them until it is closed.
  ReplayedText text_;
  std::vector<int32_t> said_;
  Answer answer_;
  double end_ = 0;

  uint64_t session_id_ = 0;
  std::mutex mutex_;
  std::condition_variable closed_;
  bool is_closed_ = false;
  const std::unique_ptr<model::LanguageModel> model_;
  TargetEngine engine_;
  worker::EngineThread thread_;
};

struct Flags {
  std::string prompts = "tests/data/humaneval.jsonl";
  std::string tokenizer = "models/target";
  std::string step_time = "1:10,8:10.2,16:10.3";
  int count = 20;
  int repetitions = 3;
  int slots = 16;

  bool Set(const std::string& flag, const char* value) {
    if (flag == "--prompts") prompts = value;
    if (flag == "--tokenizer") tokenizer = value;
    if (flag == "--step-time") step_time = value;
    if (flag == "--count") count = std::max(1, std::atoi(value));
    if (flag == "--repetitions") repetitions = std::max(1, std::atoi(value));
    if (flag == "--slots") slots = std::max(0, std::atoi(value));
    return flag == "--prompts" || flag == "--tokenizer" ||
           flag == "--step-time" || flag == "--count" ||
           flag == "--repetitions" || flag == "--slots";
  }
};

std::vector<ReplayedText> Texts(const Flags& flags,
                                const tokenizer::Tokenizer& tokenizer,
                                int* left_out) {
  std::ostringstream file;
  file << std::ifstream(flags.prompts).rdbuf();
  std::vector<ReplayedText> texts;
  for (const testing::EditedCopy& copy :
       ValueOrExit(testing::MakeEditedCopies(file.str()))) {
    ReplayedText text = ValueOrExit(testing::Encoded(copy, tokenizer));
    if (testing::Loops(text.token_ids)) {
      ++*left_out;
      continue;
    }
    texts.push_back(std::move(text));
    if (static_cast<int>(texts.size()) == flags.count) break;
  }
  return texts;
}

void Print(const char* name, const std::vector<double>& seconds,
           const Answer& sum, int tokens) {
  std::printf("%-6s %9.3f %9.1f %7d %9.2f %9d %9d\n", name, Median(seconds),
              tokens / Median(seconds), sum.steps,
              static_cast<double>(tokens) / sum.steps, sum.proposed,
              sum.accepted);
}

int Main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc || !flags.Set(argv[i], argv[i + 1])) {
      std::fprintf(stderr, "unknown flag %s, or no value\n", argv[i]);
      return 1;
    }
  }
  const auto tokenizer = ValueOrExit(tokenizer::LoadTokenizer(flags.tokenizer));
  int left_out = 0;
  const std::vector<ReplayedText> texts = Texts(flags, *tokenizer, &left_out);
  int tokens = 0;
  for (const ReplayedText& text : texts) tokens += text.answer_length();
  Replayer replayer(tokenizer->vocab_size(), flags.slots,
                    ValueOrExit(ParseStepTimes(flags.step_time)));
  std::vector<double> seconds[2];
  Answer sums[2];
  for (int i = 0; i < flags.repetitions; ++i) {
    for (std::vector<double>& each : seconds) each.push_back(0);
    sums[0] = sums[1] = {};
    for (const ReplayedText& text : texts) {
      for (const bool from_suffixes : {false, true}) {
        const Answer answer = replayer.Say(text, from_suffixes);
        Answer& sum = sums[from_suffixes];
        seconds[from_suffixes].back() += answer.seconds;
        sum.steps += answer.steps;
        sum.proposed += answer.proposed;
        sum.accepted += answer.accepted;
      }
    }
  }
  std::printf("%zu edited copies, %d tokens, %d that loop left out; a step ",
              texts.size(), tokens, left_out);
  std::printf("takes %s ms\n", flags.step_time.c_str());
  std::printf("%-6s %9s %9s %7s %9s %9s %9s\n", "method", "seconds", "tokens/s",
              "steps", "tok./step", "proposed", "accepted");
  Print("ar", seconds[0], sums[0], tokens);
  Print("async", seconds[1], sums[1], tokens);
  std::printf("async / ar %.2f\n", Median(seconds[0]) / Median(seconds[1]));
  return 0;
}

}  // namespace
}  // namespace nacre::target_worker

int main(int argc, char** argv) {
  return nacre::target_worker::Main(argc, argv);
}
