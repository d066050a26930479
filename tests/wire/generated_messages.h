// Messages as ours send them, with every field drawn at random: what a field
// may hold is what worker.proto says, and its bounds come up often.

#ifndef TESTS_WIRE_GENERATED_MESSAGES_H_
#define TESTS_WIRE_GENERATED_MESSAGES_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "speculation/ranks.h"
#include "tests/wire/generated_values.h"
#include "wire/draft_messages.h"
#include "wire/session_codec.h"
#include "wire/target_messages.h"

namespace nacre::wire {

class MessageMaker : private ValueMaker {
 public:
  explicit MessageMaker(uint64_t seed) : ValueMaker(seed) {}

  TargetCommands MakeTargetCommands() {
    TargetCommands commands;
    MakeCommon(&commands);
    for (int i = Few(); i > 0; --i) commands.open.push_back(MakeOpenTarget());
    for (int i = Few(); i > 0; --i)
      commands.plans.push_back({Id(), MakeTargetPlan()});
    for (int i = Few(); i > 0; --i)
      commands.acknowledged.push_back({Id(), Int()});
    commands.draft_lost = Ids();
    for (int i = Few(); i > 0; --i) {
      commands.draft_attached.push_back({Id(), Word(), Int()});
    }
    for (int i = Few(); i > 0; --i)
      commands.tails.push_back({Id(), MakeTail()});
    return commands;
  }

  DraftCommands MakeDraftCommands() {
    DraftCommands commands;
    MakeCommon(&commands);
    for (int i = Few(); i > 0; --i) commands.open.push_back(MakeOpenDraft());
    for (int i = Few(); i > 0; --i)
      commands.plans.push_back({Id(), MakeDraftPlan()});
    for (int i = Few(); i > 0; --i) {
      commands.commits.push_back({Id(), {Int(), Tokens(kMaxStepTokens)}});
    }
    return commands;
  }

  TargetEvents MakeTargetEvents() {
    TargetEvents events;
    events.common = MakeSessionEvents();
    for (int i = Few(); i > 0; --i) events.verdicts.push_back(MakeVerdict());
    events.prompt_logprobs = {{Id(), Int(), MakeLogprobs(64)}};
    return events;
  }

  DraftEvents MakeDraftEvents() {
    DraftEvents events;
    events.common = MakeSessionEvents();
    for (int i = Few(); i > 0; --i) events.tails.push_back({Id(), MakeTail()});
    for (int i = Few(); i > 0; --i) {
      events.policy_notes.push_back({Id(), Text(kMaxNoteBytes)});
    }
    for (int i = Few(); i > 0; --i) {
      std::vector<int> ranks;
      for (int j = Few(); j > 0; --j) {
        ranks.push_back(1 + Below(speculation::kBeyond));
      }
      events.ranks.push_back(
          {Id(), static_cast<uint32_t>(UpTo(1000)), std::move(ranks), Int()});
    }
    return events;
  }

 private:
  template <typename Commands>
  void MakeCommon(Commands* commands) {
    if (Coin()) commands->kept = Ids();
    commands->close = Ids();
    if (Coin()) commands->ping_ns = commands->coordinator = Id();
    if (Coin()) commands->kv_report = {Id(), Few(), Few(), Id(), Few(), Few()};
  }

  SamplingParams MakeSampling() {
    SamplingParams params;
    params.temperature = Real();
    params.top_k = Int();
    params.top_p = Real();
    params.min_p = Real();
    params.repetition_penalty = Real();
    params.frequency_penalty = Real();
    params.presence_penalty = Real();
    params.seed = Id();
    for (int i = Few(); i > 0; --i) params.logit_bias.emplace_back(i, Real());
    std::sort(params.logit_bias.begin(), params.logit_bias.end());
    return params;
  }
  speculation::TargetPlan MakeTargetPlan() {
    const auto few = [this] { return Below(speculation::kMaxWindow + 1); };
    return {few(),  few(), few(),  UpTo(kMaxDurationNs),
            Coin(), few(), Coin(), Coin()};
  }
  speculation::DraftPlan MakeDraftPlan() {
    const auto lead = [this] { return Below(speculation::kMaxLead + 1); };
    speculation::DraftPlan plan = {lead(), lead(), Coin()};
    if (Coin()) plan.tree = *speculation::ParseTreeSpec("static:[[0],[0,3]]");
    if (Coin()) plan.tree = speculation::TreeShape::kCape;
    return plan;
  }
  speculation::Verification MakeVerification() {
    return Coin() ? speculation::Verification::kRatio
                  : speculation::Verification::kExact;
  }

  OpenTarget MakeOpenTarget() {
    OpenTarget open;
    open.session_id = Id();
    open.request_id = Text(40);
    open.token_ids = Tokens(300);
    open.prompt_length = Int();
    open.max_tokens = Int();
    open.sampling = MakeSampling();
    open.stop_token_ids = Tokens(3);
    open.ignore_eos = Coin();
    open.min_tokens = Int();
    if (Coin()) open.logprobs = Int();
    open.plan = MakeTargetPlan();
    open.epoch = Word();
    open.has_draft = Coin();
    open.verification = MakeVerification();
    open.hidden_channel = Id();
    open.kv_channel = Id();
    open.num_slots = Int();
    if (Coin()) open.suffixes = {Id(), Id()};
    if (Coin()) open.prompt_logprobs = open.first_prompt_logprob = Int();
    return open;
  }
  OpenDraft MakeOpenDraft() {
    OpenDraft open;
    open.session_id = Id();
    open.request_id = Text(40);
    open.epoch = Word();
    open.token_ids = Tokens(300);
    open.prompt_length = Int();
    open.max_length = Int();
    open.sampling = MakeSampling();
    open.end_token_ids = Tokens(3);
    open.min_tokens = Int();
    open.vocab_limit = Int();
    open.plan = MakeDraftPlan();
    open.policy = Text(40);
    open.oracle_token_ids = Tokens(300);
    open.target_fingerprint = Text(40);
    open.verification = MakeVerification();
    open.hidden_address = Text(40);
    open.hidden_channel = Id();
    open.kv_channel = Id();
    open.num_slots = Int();
    open.tells_candidates = Coin();
    return open;
  }

  // A chain, with distributions or without, or a tree.
  speculation::Tail MakeTail() {
    using speculation::StopMark;
    speculation::Tail tail;
    tail.epoch = Word();
    tail.base_length = Int();
    tail.first_position = Int();
    tail.stop = static_cast<StopMark>(random_() %
                                      (static_cast<int>(StopMark::kEnd) + 1));
    const int kind = Few();
    tail.token_ids =
        Tokens(kind == 1 ? speculation::kMaxLead : speculation::kMaxTailNodes);
    const int count = static_cast<int>(tail.token_ids.size());
    if (kind == 1) {
      for (int i = 0; i < count; ++i) {
        std::vector<int32_t> ids = Tokens(speculation::kMaxDistribution);
        std::vector<float> weights(ids.size(), Real());
        tail.distributions.push_back({std::move(ids), std::move(weights)});
      }
    } else if (kind == 2) {
      tail.first_position = tail.base_length;
      tail.first_node =
          1 + static_cast<int>(UpTo(speculation::kMaxNode - count));
      for (int i = 0; i < count; ++i) {
        tail.parents.push_back(static_cast<int>(UpTo(tail.first_node + i - 1)));
        tail.scores.push_back(-std::abs(Real()));
      }
    }
    return tail;
  }

  SessionVerdict MakeVerdict() {
    using speculation::FinishReason;
    SessionVerdict made;
    made.session_id = Id();
    speculation::Verdict& verdict = made.verdict;
    verdict.base_length = Int();
    verdict.token_ids = Tokens(kMaxStepTokens);
    verdict.window = Int();
    verdict.matched = Below(speculation::kMaxWindow);
    verdict.verified = Int();
    verdict.accepted = Int();
    verdict.degraded = Coin();
    verdict.finish = static_cast<FinishReason>(
        random_() % (static_cast<int>(FinishReason::kLength) + 1));
    if (Coin()) {
      const int last = speculation::kMaxNode - static_cast<int>(UpTo(1000));
      for (int i = 0; i < verdict.matched; ++i) {
        verdict.path.push_back(last - verdict.matched + 1 + i);
      }
    }
    verdict.suffix_proposed = Int();
    verdict.suffix_accepted = Int();
    verdict.branch_accepted = Int();
    made.logprobs = MakeLogprobs(static_cast<int>(verdict.token_ids.size()));
    return made;
  }

  std::vector<TokenLogprobs> MakeLogprobs(int most) {
    std::vector<TokenLogprobs> made(static_cast<size_t>(Below(most + 1)));
    for (TokenLogprobs& token : made) {
      token = {Int(), Real(), {}};
      token.top.resize(static_cast<size_t>(Below(kMaxTopLogprobs + 1)),
                       {Int(), Real()});
    }
    return made;
  }

  Span MakeSpan() {
    Span span;
    span.session_id = Id();
    span.kind = static_cast<Span::Kind>(
        random_() % (static_cast<int>(Span::Kind::kHidden) + 1));
    span.start_ns = UpTo(int64_t{1} << 60);
    span.duration_ns = UpTo(kMaxDurationNs);
    span.rows = static_cast<int>(UpTo(kMaxRows));
    span.batch_rows = Coin() ? 0 : std::max(span.rows, 1);
    span.matched = static_cast<int>(UpTo(kMaxRows));
    span.accepted = static_cast<int>(UpTo(kMaxRows));
    span.length = Int();
    span.batch_sessions = static_cast<int>(UpTo(kMaxRows));
    span.bytes = UpTo(int64_t{1} << 40);
    span.abandoned = Coin();
    span.after_miss = Coin();
    for (int i = Coin() ? Below(speculation::kRanks + 1) : 0; i > 0; --i) {
      span.candidates.push_back({Int(), Real()});
    }
    return span;
  }

  SessionEvents MakeSessionEvents() {
    SessionEvents events;
    for (int i = Few(); i > 0; --i) {
      events.opened.push_back({Id(), Int(), Text(kMaxNoteBytes)});
    }
    for (int i = Few(); i > 0; --i) events.cached.push_back({Id(), Int()});
    for (int i = Few(); i > 0; --i) {
      const auto code = static_cast<absl::StatusCode>(1 + random_() % 16);
      events.failures.push_back(
          {Id(), absl::Status(code, Text(kMaxErrorBytes)), Word()});
    }
    events.closed = Ids();
    for (int i = Few(); i > 0; --i) events.spans.push_back(MakeSpan());
    if (Coin()) events.pong = {Id(), UpTo(int64_t{1} << 60), Id()};
    return events;
  }
};

}  // namespace nacre::wire

#endif  // TESTS_WIRE_GENERATED_MESSAGES_H_
