#include "wire/session_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "tests/wire/generated_messages.h"

namespace nacre::wire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kHuge = std::numeric_limits<uint32_t>::max();
constexpr int kMaxInt = std::numeric_limits<int>::max();

// Also through bytes: what is not in the proto is not on the wire.
template <typename Message>
Message Travel(const Message& message) {
  auto proto = Encode(message);
  const std::string bytes = proto.SerializeAsString();
  proto.Clear();
  EXPECT_TRUE(proto.ParseFromString(bytes));
  return Decode(proto);
}

TEST(SessionCodecTest, EveryMessageSurvivesTheWire) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    MessageMaker maker(seed);
    const TargetCommands to_target = maker.MakeTargetCommands();
    EXPECT_EQ(Travel(to_target), to_target) << seed;
    const DraftCommands to_draft = maker.MakeDraftCommands();
    EXPECT_EQ(Travel(to_draft), to_draft) << seed;
    const TargetEvents of_target = maker.MakeTargetEvents();
    EXPECT_EQ(Travel(of_target), of_target) << seed;
    const DraftEvents of_draft = maker.MakeDraftEvents();
    EXPECT_EQ(Travel(of_draft), of_draft) << seed;
  }
}

TEST(SessionCodecTest, EventsThatSayNothingOfASessionAreEmpty) {
  DraftEvents events;
  events.common.pong.emplace();
  EXPECT_TRUE(events.empty());
  events.policy_notes.push_back({7, "without"});
  EXPECT_FALSE(events.empty());
  TargetEvents malformed;
  EXPECT_TRUE(malformed.empty());
  malformed.common.malformed.emplace_back();
  EXPECT_FALSE(malformed.empty());
}

// Other implementations go by these names and numbers.
TEST(SessionCodecTest, FieldsAreWhereTheProtocolSays) {
  TargetEvents events;
  SessionEvents& common = events.common;
  common.opened = {{1, 32, "half of it"}};
  common.cached = {{1, 16}};
  common.failures = {{2, absl::ResourceExhaustedError("full"), 7}};
  common.closed = {3};
  common.spans = {{4, Span::Kind::kVerify, 5, 6, 7, 8, 9, 10, 11, 12},
                  {.session_id = 4, .kind = Span::Kind::kHidden, .bytes = 13}};
  EXPECT_EQ(Encode(events).ShortDebugString(),
            "opened { session_id: 1 cached_tokens: 32 policy_note: \"half of "
            "it\" } "
            "errors { session_id: 2 code: 8 message: \"full\" epoch: 7 } "
            "closed { session_id: 3 } "
            "spans { session_id: 4 kind: KIND_VERIFY start_ns: 5 duration_ns: "
            "6 rows: 7 batch_rows: 8 matched: 9 accepted: 10 length: 11 "
            "batch_sessions: 12 } "
            "spans { session_id: 4 kind: KIND_HIDDEN bytes: 13 } "
            "cached { session_id: 1 tokens: 16 }");
  TargetEvents verdicts;
  speculation::Verdict& verdict =
      verdicts.verdicts.emplace_back(SessionVerdict{.session_id = 9}).verdict;
  verdict.base_length = 10;
  verdict.token_ids = {1, 2, 3};
  verdict.window = 4;
  verdict.matched = 2;
  verdict.verified = 3;
  verdict.accepted = 2;
  verdict.degraded = true;
  verdict.finish = speculation::FinishReason::kStop;
  verdict.path = {5, 7};
  EXPECT_EQ(Encode(verdicts).verdicts(0).ShortDebugString(),
            "session_id: 9 base_length: 10 token_ids: 1 token_ids: 2 "
            "token_ids: 3 window: 4 matched: 2 verified: 3 accepted: 2 "
            "degraded: true finish: FINISH_REASON_STOP path: 5 path: 7");
  const auto stop = [](speculation::StopMark mark) {
    DraftEvents said;
    said.tails.emplace_back().tail.stop = mark;
    return Encode(said).tails(0).stop();
  };
  EXPECT_EQ(stop(speculation::StopMark::kChunk), v1::STOP_MARK_CHUNK);
  EXPECT_EQ(stop(speculation::StopMark::kEnd), v1::STOP_MARK_END);
}

// ------------------------------------------------------- what a peer may say

TEST(SessionCodecTest, UnsetSamplingFieldsAreNeutral) {
  v1::TargetControl control;
  control.add_open();
  const SamplingParams params = Decode(control).open[0].sampling;
  EXPECT_EQ(params, SamplingParams());
  EXPECT_TRUE(ValidateSamplingParams(params).ok());
}

TEST(SessionCodecTest, NumbersOfCommandsBecomeInvalidOrTheLimit) {
  v1::TargetControl control;
  v1::OpenTarget* open = control.add_open();
  open->set_prompt_length(kHuge);
  open->add_token_ids(kHuge);
  open->add_token_ids(0x80000000);
  open->add_token_ids(0x7FFFFFFF);
  open->set_max_tokens(kHuge);
  open->set_min_tokens(kHuge);
  open->set_logprobs(kHuge);
  open->set_prompt_logprobs(kHuge);
  open->set_first_prompt_logprob(kHuge);
  open->mutable_sampling()->set_top_k(kHuge);
  (*open->mutable_sampling()->mutable_logit_bias())[kHuge] = 1.0f;
  v1::TargetPlan* plan = open->mutable_plan();
  plan->set_gate_after_mismatch(kHuge);
  plan->set_gate_in_flow(3);
  plan->set_window(kHuge);
  plan->set_gate_timeout_ns(~uint64_t{0});
  control.add_acknowledge()->set_committed_length(kHuge);
  control.add_attach_draft()->set_opened_length(kHuge);
  const TargetCommands commands = Decode(control);
  const OpenTarget& decoded = commands.open[0];
  EXPECT_TRUE(decoded.refusal.ok());  // the engine refuses it
  EXPECT_EQ(decoded.prompt_length, -1);
  EXPECT_THAT(decoded.token_ids, ElementsAre(-1, -1, kMaxInt));
  EXPECT_EQ(decoded.max_tokens, kMaxInt);
  EXPECT_EQ(decoded.min_tokens, kMaxInt);
  EXPECT_EQ(decoded.logprobs, kMaxInt);
  EXPECT_EQ(decoded.prompt_logprobs, kMaxInt);
  EXPECT_EQ(decoded.first_prompt_logprob, -1);
  EXPECT_EQ(decoded.sampling.top_k, kMaxInt);
  EXPECT_EQ(decoded.sampling.logit_bias[0].first, -1);
  constexpr int kMaxWindow = speculation::kMaxWindow;
  EXPECT_EQ(decoded.plan, (speculation::TargetPlan{kMaxWindow, 3, kMaxWindow,
                                                   kMaxDurationNs}));
  EXPECT_EQ(commands.acknowledged[0].committed_length, -1);
  EXPECT_EQ(commands.draft_attached[0].opened_length, -1);
  v1::DraftControl draft;
  draft.add_plan()->mutable_plan()->set_lead_in_flow(kHuge);
  draft.add_commit()->set_first_position(kHuge);
  EXPECT_EQ(Decode(draft).plans[0].plan,
            (speculation::DraftPlan{0, speculation::kMaxLead}));
  EXPECT_EQ(Decode(draft).commits[0].commit.first_position, -1);
}

TEST(SessionCodecTest, AScoreIsNoProbabilityOverOne) {
  const auto least_score = [](float score) {
    v1::DraftControl control;
    control.add_plan()->mutable_plan()->set_least_score(score);
    return Decode(control).plans[0].plan.least_score;
  };
  EXPECT_EQ(least_score(-2.5f), -2.5f);
  EXPECT_EQ(least_score(1.0f), 0.0f);
  EXPECT_EQ(least_score(std::numeric_limits<float>::quiet_NaN()), 0.0f);
}

TEST(SessionCodecTest, OpensThatCannotBeAreRefused) {
  const auto refusal = [](const std::function<void(v1::OpenDraft*)>& change) {
    v1::DraftControl control;
    control.add_open()->set_session_id(5);
    change(control.mutable_open(0));
    const DraftCommands commands = Decode(control);
    EXPECT_EQ(commands.open[0].session_id, 5u);
    return commands.open[0].refusal;
  };
  EXPECT_TRUE(refusal([](v1::OpenDraft* open) {
                open->mutable_token_ids()->Resize(kMaxTokenIds, 1);
              }).ok());
  const absl::Status longer = refusal([](v1::OpenDraft* open) {
    open->mutable_token_ids()->Resize(kMaxTokenIds + 1, 1);
  });
  EXPECT_EQ(longer.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(longer.message(),
            "OpenDraft.token_ids has 4194305 entries, at most 4194304");
  EXPECT_EQ(refusal([](v1::OpenDraft* open) {
              open->set_verification(static_cast<v1::Verification>(9));
            }).message(),
            "unknown verification 9");
  v1::TargetControl unspecified;
  unspecified.add_open();
  EXPECT_TRUE(Decode(unspecified).open[0].refusal.ok());
  EXPECT_EQ(Decode(unspecified).open[0].verification,
            speculation::Verification::kExact);
}

// ------------------------------------------------------------ parts left out

// A tail of two nodes; `change` makes it malformed. Returns why.
std::string WhyNot(const std::function<void(v1::Tail*)>& change,
                   bool is_tree = true) {
  v1::DraftEvent event;
  v1::Tail* tail = event.add_tails();
  tail->set_session_id(7);
  tail->set_base_length(10);
  tail->set_first_position(10);
  for (uint32_t i = 0; i < 2; ++i) {
    tail->add_token_ids(i);
    if (!is_tree) continue;
    tail->add_parents(i);
    tail->add_scores(-1.0f);
    tail->set_first_node(1);
  }
  event.add_tails()->set_session_id(8);
  change(event.mutable_tails(0));
  const DraftEvents events = Decode(event);
  // The target's end of the relay judges alike.
  v1::TargetControl control;
  *control.mutable_tails() = event.tails();
  const TargetCommands commands = Decode(control);
  EXPECT_EQ(commands.malformed, events.common.malformed);
  EXPECT_EQ(commands.tails, events.tails);
  EXPECT_EQ(events.tails.back().session_id, 8u);
  if (events.common.malformed.empty()) return "";
  EXPECT_EQ(events.tails.size(), 1u);
  EXPECT_EQ(events.common.malformed[0].session_id, 7u);
  return std::string(events.common.malformed[0].status.message());
}

TEST(SessionCodecTest, TailsThatBreakABoundAreLeftOut) {
  const auto chain = [](const std::function<void(v1::Tail*)>& change) {
    return WhyNot(change, /*is_tree=*/false);
  };
  EXPECT_EQ(chain([](v1::Tail*) {}), "");
  EXPECT_EQ(chain([](v1::Tail* tail) {
              tail->set_stop(static_cast<v1::StopMark>(99));
            }),
            "unknown Tail.stop 99");
  EXPECT_EQ(
      chain([](v1::Tail* tail) { tail->mutable_token_ids()->Resize(256, 1); }),
      "");
  EXPECT_EQ(
      chain([](v1::Tail* tail) { tail->mutable_token_ids()->Resize(257, 1); }),
      "Tail.token_ids has 257 entries, at most 256");
  EXPECT_EQ(chain([](v1::Tail* tail) {
              for (int i = 0; i < 130; ++i) tail->add_distributions();
            }),
            "Tail.distributions has 130 entries, at most 129");
  EXPECT_EQ(chain([](v1::Tail* tail) {
              tail->add_distributions()->mutable_token_ids()->Resize(65, 1);
            }),
            "DraftDistribution.token_ids has 65 entries, at most 64");
  EXPECT_EQ(chain([](v1::Tail* tail) {
              tail->add_distributions()->mutable_weights()->Resize(65, 1);
            }),
            "DraftDistribution.weights has 65 entries, at most 64");
  EXPECT_EQ(chain([](v1::Tail* tail) { tail->set_first_node(1); }),
            "Tail.first_node is 1 without Tail.parents");
  EXPECT_EQ(chain([](v1::Tail* tail) { tail->add_scores(-1.0f); }),
            "Tail.scores has 1 entries, Tail.parents has 0");
}

TEST(SessionCodecTest, TreesThatAreNoneAreLeftOut) {
  EXPECT_EQ(WhyNot([](v1::Tail*) {}), "");
  EXPECT_EQ(WhyNot([](v1::Tail* tail) { tail->add_token_ids(1); }),
            "Tail.parents has 2 entries, Tail.token_ids has 3");
  EXPECT_EQ(WhyNot([](v1::Tail* tail) { tail->add_scores(0.0f); }),
            "Tail.scores has 3 entries, Tail.parents has 2");
  EXPECT_EQ(WhyNot([](v1::Tail* tail) { tail->set_parents(1, 2); }),
            "Tail.parents[1] of node 2 is 2, must be below it");
  EXPECT_EQ(WhyNot([](v1::Tail* tail) { tail->set_first_node(0); }),
            "Tail.first_node is 0 of 2 nodes, must be in [1, 1073741823]");
  EXPECT_EQ(WhyNot([](v1::Tail* tail) { tail->set_first_node(1 << 30); }),
            "Tail.first_node is 1073741824 of 2 nodes, must be in [1, "
            "1073741823]");
  EXPECT_EQ(WhyNot([](v1::Tail* tail) { tail->set_first_node((1 << 30) - 1); }),
            "");
  EXPECT_EQ(WhyNot([](v1::Tail* tail) { tail->set_first_position(11); }),
            "Tail.first_position of a tree is 11, its base_length 10");
  EXPECT_EQ(WhyNot([](v1::Tail* tail) { tail->add_distributions(); }),
            "Tail.distributions of a tree has 1 entries, must have none");
  EXPECT_EQ(WhyNot([](v1::Tail* tail) { tail->set_scores(1, 0.0f); }), "");
  EXPECT_EQ(WhyNot([](v1::Tail* tail) { tail->set_scores(1, 0.5f); }),
            "Tail.scores[1] is 0.5, must be finite and at most 0");
  EXPECT_THAT(WhyNot([](v1::Tail* tail) { tail->set_scores(0, NAN); }),
              HasSubstr("Tail.scores[0] is nan"));
  EXPECT_THAT(WhyNot([](v1::Tail* tail) { tail->set_scores(0, -INFINITY); }),
              HasSubstr("Tail.scores[0] is -inf"));
}

TEST(SessionCodecTest, VerdictsAndCommitsThatBreakABoundAreLeftOut) {
  const auto verdict = [](const std::function<void(v1::Verdict*)>& change) {
    v1::TargetEvent event;
    event.add_verdicts()->set_session_id(7);
    event.mutable_verdicts(0)->set_matched(2);
    change(event.mutable_verdicts(0));
    const TargetEvents events = Decode(event);
    EXPECT_EQ(events.verdicts.size() + events.common.malformed.size(), 1u);
    if (!events.verdicts.empty()) return std::string();
    EXPECT_EQ(events.common.malformed[0].session_id, 7u);
    return std::string(events.common.malformed[0].status.message());
  };
  EXPECT_EQ(
      verdict([](v1::Verdict* v) { v->mutable_token_ids()->Resize(65, 1); }),
      "");
  EXPECT_EQ(
      verdict([](v1::Verdict* v) { v->mutable_token_ids()->Resize(66, 1); }),
      "Verdict.token_ids has 66 entries, at most 65");
  EXPECT_EQ(verdict([](v1::Verdict* v) {
              v->set_finish(v1::FINISH_REASON_CANCELLED);
            }),
            "unknown Verdict.finish 4");
  EXPECT_EQ(verdict([](v1::Verdict* v) {
              v->add_path(1);
              v->add_path(3);
            }),
            "");
  EXPECT_EQ(verdict([](v1::Verdict* v) { v->add_path(1); }),
            "Verdict.path has 1 entries, Verdict.matched has 2");
  EXPECT_EQ(verdict([](v1::Verdict* v) {
              v->add_path(3);
              v->add_path(3);
            }),
            "Verdict.path has node 3 after 3, must rise to at most "
            "1073741824");
  EXPECT_EQ(verdict([](v1::Verdict* v) {
              v->add_path(3);
              v->add_path((1u << 30) + 1);
            }),
            "Verdict.path has node 1073741825 after 3, must rise to at most "
            "1073741824");
  EXPECT_EQ(verdict([](v1::Verdict* v) {
              v->set_matched(65);
              for (uint32_t i = 1; i <= 65; ++i) v->add_path(i);
            }),
            "Verdict.path has 65 entries, at most 64");
  v1::DraftControl control;
  control.add_commit()->mutable_token_ids()->Resize(65, 1);
  EXPECT_TRUE(Decode(control).malformed.empty());
  control.mutable_commit(0)->add_token_ids(1);
  EXPECT_TRUE(Decode(control).commits.empty());
  ASSERT_EQ(Decode(control).malformed.size(), 1u);
  EXPECT_EQ(Decode(control).malformed[0].status.message(),
            "CommitTokens.token_ids has 66 entries, at most 65");
}

// Whatever numbers a worker sends, arithmetic on what becomes of them is safe.
TEST(SessionCodecTest, NumbersThatNoWorkerReachesAreBounded) {
  v1::TargetEvent event;
  v1::Span* span = event.add_spans();
  span->set_kind(v1::Span::KIND_VERIFY);
  span->set_start_ns(~uint64_t{0});
  span->set_duration_ns(~uint64_t{0});
  span->set_rows(kHuge);
  span->set_batch_rows(1);
  span->set_matched(kHuge);
  span->set_accepted(kHuge);
  span->set_length(kHuge);
  span->set_batch_sessions(kHuge);
  span->set_bytes(~uint64_t{0});
  *event.add_spans() = *span;
  event.mutable_spans(1)->set_batch_rows(0);
  event.add_spans()->set_kind(static_cast<v1::Span::Kind>(99));
  v1::Verdict* verdict = event.add_verdicts();
  verdict->set_base_length(kHuge);
  verdict->set_window(kHuge);
  verdict->set_matched(kHuge);
  verdict->set_verified(kHuge);
  verdict->set_accepted(kHuge);
  verdict->add_token_ids(kHuge);
  for (int i = 0; i < 3; ++i) {
    v1::TokenLogprobs* token = verdict->add_logprobs();
    for (int j = 0; j < 30; ++j) {
      token->add_top_ids(static_cast<uint32_t>(j));
      token->add_top_logprobs(-1.0f);
    }
  }
  event.mutable_pong()->set_worker_ns(~uint64_t{0});
  const TargetEvents events = Decode(event);
  ASSERT_EQ(events.common.spans.size(), 2u);
  for (const Span& decoded : events.common.spans) {
    EXPECT_EQ(decoded.start_ns, int64_t{1} << 60);
    EXPECT_EQ(decoded.duration_ns, kMaxDurationNs);
    EXPECT_EQ(decoded.rows, kMaxRows);
    EXPECT_EQ(decoded.matched, kMaxRows);
    EXPECT_EQ(decoded.accepted, kMaxRows);
    EXPECT_EQ(decoded.length, -1);
    EXPECT_EQ(decoded.batch_sessions, kMaxRows);
    EXPECT_EQ(decoded.bytes, int64_t{1} << 40);
  }
  // No share of a step is more than the step.
  EXPECT_EQ(events.common.spans[0].batch_rows, kMaxRows);
  EXPECT_EQ(events.common.spans[1].batch_rows, 0);
  EXPECT_EQ(events.common.malformed[0].status.message(),
            "unknown Span.kind 99");
  ASSERT_EQ(events.verdicts.size(), 1u);
  const speculation::Verdict& what = events.verdicts[0].verdict;
  EXPECT_EQ(what.base_length, -1);
  EXPECT_EQ(what.window, -1);
  EXPECT_EQ(what.matched, -1);
  EXPECT_EQ(what.verified, -1);
  EXPECT_EQ(what.accepted, -1);
  EXPECT_THAT(what.token_ids, ElementsAre(-1));
  ASSERT_EQ(events.verdicts[0].logprobs.size(), 1u);
  EXPECT_EQ(events.verdicts[0].logprobs[0].top.size(), 20u);
  EXPECT_EQ(events.common.pong->worker_ns, int64_t{1} << 60);
}

TEST(SessionCodecTest, SizesThatNoWorkerHasAreBounded) {
  v1::TargetControl control;
  v1::KvReport* const report = control.mutable_kv_report();
  report->set_reserved_tokens(~uint64_t{0});
  report->set_need_tokens(~uint64_t{0});
  report->set_wanted_tokens(~uint64_t{0});
  report->set_sessions(kHuge);
  const KvReport decoded = *Decode(control).kv_report;
  EXPECT_EQ(decoded.reserved, int64_t{1} << 62);
  EXPECT_EQ(decoded.need, int64_t{1} << 62);
  EXPECT_EQ(decoded.wanted, int64_t{1} << 62);
  EXPECT_EQ(decoded.sessions, kMaxRows);
}

TEST(SessionCodecTest, RanksThatBreakABoundAreLeftOut) {
  v1::DraftEvent event;
  event.add_ranks()->add_ranks(9);
  event.add_ranks()->add_ranks(0);
  event.add_ranks()->add_ranks(10);
  for (int i = 0; i < 66; ++i) {
    if (i == 0) event.add_ranks();
    event.mutable_ranks(3)->add_ranks(1);
  }
  const DraftEvents events = Decode(event);
  ASSERT_EQ(events.ranks.size(), 1u);
  EXPECT_THAT(events.ranks[0].ranks, ElementsAre(9));
  ASSERT_EQ(events.common.malformed.size(), 3u);
  EXPECT_EQ(events.common.malformed[0].status.message(),
            "SessionRanks.ranks has 0, must be in [1, 9]");
  EXPECT_EQ(events.common.malformed[2].status.message(),
            "SessionRanks.ranks has 66 entries, at most 65");
}

TEST(SessionCodecTest, ASpanWithTooManyCandidatesIsLeftOut) {
  v1::DraftEvent event;
  for (const int count : {8, 9}) {
    v1::Span* span = event.add_spans();
    span->set_kind(v1::Span::KIND_DRAFT);
    for (int i = 0; i < count; ++i) span->add_candidates()->set_token_id(i);
  }
  const DraftEvents events = Decode(event);
  ASSERT_EQ(events.common.spans.size(), 1u);
  EXPECT_EQ(events.common.spans[0].candidates.size(), 8u);
  ASSERT_EQ(events.common.malformed.size(), 1u);
  EXPECT_EQ(events.common.malformed[0].status.message(),
            "Span.candidates has 9 entries, at most 8");
}

TEST(SessionCodecTest, TooManyPromptLogprobsAreLeftOut) {
  v1::TargetEvent event;
  v1::PromptLogprobs* told = event.add_prompt_logprobs();
  told->set_session_id(7);
  told->set_first_position(kHuge);
  for (int i = 0; i < kMaxPromptLogprobs; ++i) told->add_logprobs();
  EXPECT_EQ(Decode(event).prompt_logprobs.at(0).logprobs.size(), 64u);
  EXPECT_EQ(Decode(event).prompt_logprobs.at(0).first_position, -1);
  told->add_logprobs();
  const TargetEvents events = Decode(event);
  EXPECT_TRUE(events.prompt_logprobs.empty());
  ASSERT_EQ(events.common.malformed.size(), 1u);
  EXPECT_EQ(events.common.malformed[0].session_id, 7u);
  EXPECT_EQ(events.common.malformed[0].status.message(),
            "PromptLogprobs.logprobs has 65 entries, at most 64");
}

TEST(SessionCodecTest, TextsOfPeersAreCut) {
  v1::DraftEvent event;
  event.add_policy_notes()->set_note(std::string(300, 'x'));
  event.add_opened()->set_policy_note(std::string(300, 'y'));
  event.add_errors()->set_code(13);
  event.mutable_errors(0)->set_message(std::string(5000, 'z'));
  const DraftEvents events = Decode(event);
  EXPECT_EQ(events.policy_notes[0].note, std::string(256, 'x'));
  EXPECT_EQ(events.common.opened[0].policy_note, std::string(256, 'y'));
  EXPECT_EQ(events.common.failures[0].status.message(), std::string(1024, 'z'));
  // Not within a character: what clients are told would be no string.
  for (const std::string character : {"\u00E4", "\u20AC", "\U0001F600"}) {
    for (size_t before = 0; before < 4; ++before) {
      std::string note(before, 'x');
      for (int i = 0; i < 300; ++i) note += character;
      event.mutable_policy_notes(0)->set_note(note);
      const size_t whole = (256 - before) / character.size();
      EXPECT_EQ(Decode(event).policy_notes[0].note,
                note.substr(0, before + whole * character.size()));
    }
  }
}

TEST(SessionCodecTest, AFailureIsNeverOk) {
  v1::TargetEvent event;
  for (const uint32_t code : {0u, 8u, 17u, kHuge}) {
    event.add_errors()->set_code(code);
  }
  const TargetEvents events = Decode(event);
  std::vector<absl::StatusCode> codes;
  for (const SessionFailure& failure : events.common.failures) {
    codes.push_back(failure.status.code());
  }
  EXPECT_THAT(codes, ElementsAre(absl::StatusCode::kInternal,
                                 absl::StatusCode::kResourceExhausted,
                                 absl::StatusCode::kUnknown,
                                 absl::StatusCode::kUnknown));
}

}  // namespace
}  // namespace nacre::wire
