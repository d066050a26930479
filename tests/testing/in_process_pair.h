// Both workers' real engines and the coordinator's schedule in one thread, over
// any two language models: generates for one request at a time with messages
// delivered in a random but seeded order. For tests of exactness that need
// thousands of generations, not sockets.

#ifndef TESTS_TESTING_IN_PROCESS_PAIR_H_
#define TESTS_TESTING_IN_PROCESS_PAIR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/sampling_params.h"
#include "draft_worker/draft_engine.h"
#include "model/feature_source.h"
#include "model/language_model.h"
#include "model/sampler.h"
#include "speculation/session_schedule.h"
#include "target_worker/target_engine.h"
#include "worker/tensors/tensor_publisher.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::testing {

struct PairRequest {
  std::vector<int32_t> prompt;
  int max_tokens = 16;
  SamplingParams sampling;
  speculation::Method method = speculation::Method::kAsync;
  absl::optional<int> window;
  speculation::Verification verification = speculation::Verification::kExact;
  std::string policy = {};  // a length policy that needs no file
};

// The target's own autoregressive stream: one row at a time, no engine.
inline std::vector<int32_t> GenerateAlone(model::LanguageModel& model,
                                          const PairRequest& request) {
  const int prompt_length = static_cast<int>(request.prompt.size());
  // As the target's engine opens it (target_worker/open_session.cc).
  auto sequence = model.NewPromptSequence(
      prompt_length - 1, prompt_length + request.max_tokens, 0, {});
  NACRE_CHECK(sequence.ok(), "no room for a sequence");
  model::Sampler sampler(request.sampling, model.info().vocab_size);
  model::TokenHistory history(prompt_length);
  for (int32_t id : request.prompt) history.Push(id);
  std::vector<int32_t> fed = request.prompt;
  std::vector<int32_t> output;
  while (static_cast<int>(output.size()) < request.max_tokens) {
    auto logits = model.Forward({{{sequence->get(), fed, 1}}});
    NACRE_CHECK(logits.ok(), "the forward failed");
    const int32_t id = sampler.Sample(
        *logits, prompt_length + static_cast<int>(output.size()), history);
    output.push_back(id);
    history.Push(id);
    fed = {id};
    const auto& eos = model.info().eos_token_ids;
    if (std::find(eos.begin(), eos.end(), id) != eos.end()) break;
  }
  return output;
}

struct PairExtras {
  bool gate_timeouts = true;                // of the target
  worker::FeatureFile* features = nullptr;  // of the draft
  int64_t tick_ns = 100'000;                // between two things that happen
  // How rows get from the target to the draft, which dials that address. Null:
  // they do not.
  worker::TensorPublisher* published = nullptr;
  worker::TensorReader* read = nullptr;
  std::string address = {};
  model::FeatureSource* feature_source = nullptr;  // of the target
  std::function<void()> settle = nullptr;  // called before an engine runs
};

class InProcessPair {
 public:
  // Both models outlive the pair. `seed` orders the deliveries.
  InProcessPair(model::LanguageModel* target, model::LanguageModel* draft,
                uint64_t seed, PairExtras extras = {})
      : tick_ns_(extras.tick_ns),
        address_(extras.address),
        settle_(extras.settle),
        draft_vocab_size_(draft->info().vocab_size),
        eos_ids_(target->info().eos_token_ids),
        random_(seed),
        target_(
            {.model = target,
             .send =
                 [this](worker::StreamId, target_worker::TargetEvents events) {
                   from_target_.push_back(std::move(events));
                 },
             .now_ns = [this] { return now_ns_; },
             .gate_timeouts = extras.gate_timeouts,
             .tensors = extras.published,
             .feature_source = extras.feature_source}),
        draft_({.model = draft,
                .send =
                    [this](worker::StreamId, draft_worker::DraftEvents events) {
                      from_draft_.push_back(std::move(events));
                    },
                .now_ns = [this] { return now_ns_; },
                .features = extras.features,
                .tensors = extras.read}) {}

  std::vector<int32_t> Generate(const PairRequest& request) {
    ++session_id_;
    from_target_.clear();
    from_draft_.clear();
    speculation::SessionSchedule::Options options;
    options.method = request.method;
    options.window = request.window;
    options.verification = request.verification;
    speculation::SessionSchedule schedule(options, request.prompt);
    schedule.Replan({});
    Open(request, schedule);
    bool finished = false;
    for (int64_t rounds = 0; !finished; ++rounds) {
      NACRE_CHECK(rounds < 1000000, "the session makes no progress");
      now_ns_ += tick_ns_;  // gates time out when nothing else happens
      if (settle_ != nullptr) settle_();
      switch (random_() % 4) {
        case 0:
          NACRE_CHECK(target_.RunOnce().ok(), "the target failed");
          break;
        case 1:
          NACRE_CHECK(draft_.RunOnce().ok(), "the draft failed");
          break;
        case 2:
          DeliverTail(schedule);
          break;
        case 3:
          finished = DeliverVerdict(schedule);
          break;
      }
    }
    target_worker::TargetCommands close_target;
    close_target.stream = 1;
    close_target.close = {session_id_};
    target_.Push(std::move(close_target));
    draft_worker::DraftCommands close_draft;
    close_draft.stream = 1;
    close_draft.close = {session_id_};
    draft_.Push(std::move(close_draft));
    NACRE_CHECK(target_.RunOnce().ok() && draft_.RunOnce().ok(), "close");
    stats_ = schedule.stats();
    return {schedule.committed().begin() + schedule.prompt_length(),
            schedule.committed().end()};
  }

  // Of the last generation.
  const speculation::SpeculationStats& stats() const { return stats_; }
  // Prompt tokens of all generations that the target's prefix cache had.
  int cached_tokens() const { return cached_tokens_; }
  worker::EngineStats target_stats() const { return target_.stats(); }
  worker::EngineStats draft_stats() const { return draft_.stats(); }

 private:
  void Open(const PairRequest& request,
            speculation::SessionSchedule& schedule) {
    target_worker::OpenTarget open;
    open.session_id = session_id_;
    open.token_ids = request.prompt;
    open.prompt_length = static_cast<int>(request.prompt.size());
    open.max_tokens = request.max_tokens;
    open.sampling = request.sampling;
    open.plan = schedule.plan().target;
    open.verification = request.verification;
    // A channel is one session's.
    if (!address_.empty()) open.kv_channel = session_id_;
    if (schedule.wants_draft()) {
      open.has_draft = true;
      open.epoch = schedule.AttachDraft();
      draft_worker::OpenDraft draft;
      draft.session_id = session_id_;
      draft.epoch = open.epoch;
      draft.token_ids = request.prompt;
      draft.prompt_length = open.prompt_length;
      draft.max_length = open.prompt_length + request.max_tokens - 1;
      draft.sampling = request.sampling;
      draft.end_token_ids = eos_ids_;
      draft.vocab_limit = draft_vocab_size_;
      draft.plan = schedule.plan().draft;
      draft.verification = request.verification;
      draft.policy = request.policy;
      draft.hidden_address = address_;
      draft.kv_channel = open.kv_channel;
      draft_worker::DraftCommands commands;
      commands.stream = 1;
      commands.open.push_back(std::move(draft));
      draft_.Push(std::move(commands));
    }
    target_worker::TargetCommands commands;
    commands.stream = 1;
    commands.open.push_back(std::move(open));
    target_.Push(std::move(commands));
  }

  void DeliverTail(speculation::SessionSchedule& schedule) {
    if (from_draft_.empty()) return;
    target_worker::TargetCommands commands;
    commands.stream = 1;
    NACRE_CHECK(from_draft_.front().common.failures.empty(), "draft failure");
    for (auto& [id, tail] : from_draft_.front().tails) {
      if (id == session_id_ && schedule.OnTail(tail)) {
        commands.tails.push_back({id, tail});
      }
    }
    from_draft_.pop_front();
    target_.Push(std::move(commands));
  }

  // Whether the session has ended.
  bool DeliverVerdict(speculation::SessionSchedule& schedule) {
    if (from_target_.empty()) return false;
    const target_worker::TargetEvents events = std::move(from_target_.front());
    from_target_.pop_front();
    NACRE_CHECK(events.common.failures.empty(), "target failure");
    for (const auto& opening : events.common.opened) {
      cached_tokens_ += opening.cached_tokens;
    }
    bool finished = false;
    for (const auto& [id, verdict, logprobs] : events.verdicts) {
      if (id != session_id_) continue;
      speculation::Commit commit;
      NACRE_CHECK(schedule.OnVerdict(verdict, &commit) ==
                      speculation::SessionSchedule::VerdictOutcome::kApplied,
                  "a verdict that does not follow the last one");
      finished = verdict.finish != speculation::FinishReason::kNone;
      draft_worker::DraftCommands to_draft;
      to_draft.stream = 1;
      to_draft.commits.push_back({id, commit});
      target_worker::TargetCommands to_target;
      to_target.stream = 1;
      to_target.acknowledged.push_back(
          {id, static_cast<int>(schedule.committed().size())});
      if (const auto plan = schedule.Replan({})) {
        to_draft.plans.push_back({id, plan->draft});
        to_target.plans.push_back({id, plan->target});
      }
      if (schedule.wants_draft()) draft_.Push(std::move(to_draft));
      target_.Push(std::move(to_target));
    }
    return finished;
  }

  const int64_t tick_ns_;
  const std::string address_;
  const std::function<void()> settle_;
  const int draft_vocab_size_;
  const std::vector<int32_t> eos_ids_;
  std::mt19937_64 random_;
  int64_t now_ns_ = 1;
  uint64_t session_id_ = 0;
  std::deque<target_worker::TargetEvents> from_target_;
  std::deque<draft_worker::DraftEvents> from_draft_;
  target_worker::TargetEngine target_;
  draft_worker::DraftEngine draft_;
  speculation::SpeculationStats stats_;
  int cached_tokens_ = 0;
};

}  // namespace nacre::testing

#endif  // TESTS_TESTING_IN_PROCESS_PAIR_H_
