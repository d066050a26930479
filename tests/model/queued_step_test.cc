// Steps that are queued before they are asked for change no token and no logit,
// whatever is asked for: on the reference, on the emulated device, and on a GPU
// where there is one.

#include "model/queued_step.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/testing/drawing_backend.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nacre::testing::TestFolder;
using nacre::testing::TinyCheckpoint;
using nacre::testing::WriteTinyCheckpoint;
using Draws = std::vector<absl::optional<TokenDraw>>;

constexpr int kVocab = 101;
constexpr int kMaxLength = 120;
#ifdef NACRE_EMULATED_CUDA
constexpr int kRandomSteps = 100;  // it takes a hundred times as long
#else
constexpr int kRandomSteps = 2000;
#endif

// Null where there is no GPU.
std::unique_ptr<kernels::Backend> MakeBackend() {
#ifdef NACRE_QUEUED_STEPS_ON_CUDA
  kernels::BackendOptions options;
  options.kind = "cuda";
  auto backend = kernels::CreateBackend(options);
#ifndef NACRE_EMULATED_CUDA
  if (backend.status().code() == absl::StatusCode::kFailedPrecondition) {
    return nullptr;
  }
#endif
  return *std::move(backend);
#else
  return std::make_unique<nacre::testing::DrawingBackend>();
#endif
}

TokenDraw DrawAt(int position, uint64_t seed = 7) {
  return {seed, position, 0.8f, kVocab};
}

// What a session asks for in a step.
struct Rows {
  std::vector<int32_t> tokens;
  int num_logits = 1;
  Draws draws = {};
  absl::optional<TokenDraw> next_draw = {};
};

// One model is told what will come next and one is not; everything else is done
// to both and compared.
class QueuedStepTest : public ::testing::Test {
 protected:
  static constexpr int kModels = 2;

  struct Session {
    std::unique_ptr<Sequence> sequences[kModels];
    std::vector<int32_t> tokens;          // fed
    absl::optional<int32_t> last;         // drawn after them by the last step
    absl::optional<TokenDraw> next_draw;  // as the last step had it
    uint64_t seed = 7;

    int length() const { return static_cast<int>(tokens.size()); }
    void Truncate(int length) {
      for (const auto& sequence : sequences) sequence->Truncate(length);
      tokens.resize(std::min(tokens.size(), static_cast<size_t>(length)));
    }
    void Share() {
      for (const auto& sequence : sequences) sequence->Share(tokens);
    }
  };
  using Step = std::vector<std::pair<Session*, Rows>>;

  void SetUp() override {
    const std::string dir = TestFolder("queued");
    WriteTinyCheckpoint(TinyCheckpoint(), dir);
    for (int i = 0; i < kModels; ++i) {
      backends_[i] = MakeBackend();
      if (backends_[i] == nullptr) GTEST_SKIP() << "no CUDA device";
      models_[i] = *LoadModel(
          dir, backends_[i].get(),
          {.kv_cache_bytes = 1 << 22, .progress = {}, .prefix_cache = true});
    }
  }

  std::unique_ptr<Session> Open(const std::vector<int32_t>& prompt) {
    auto session = std::make_unique<Session>();
    for (int i = 0; i < kModels; ++i) {
      session->sequences[i] =
          *models_[i]->NewSequenceWithPrefix(kMaxLength, prompt);
    }
    const int cached = session->sequences[0]->length();
    EXPECT_EQ(session->sequences[1]->length(), cached);
    session->tokens.assign(prompt.begin(), prompt.begin() + cached);
    return session;
  }

  // One row after what was drawn, drawn as promised, and the same again.
  static Rows GoOn(const Session& session, bool promises = true) {
    Rows rows = {{*session.last}, 1, {DrawAt(session.length() + 1)}};
    if (promises) rows.next_draw = DrawAt(session.length() + 2);
    return rows;
  }

  void Run(const Step& step) {
    std::vector<float> logits[kModels];
    std::vector<int32_t> drawn[kModels];
    for (int i = 0; i < kModels; ++i) {
      std::vector<SequenceRows> batch;
      for (const auto& [session, rows] : step) {
        batch.push_back({session->sequences[i].get(), rows.tokens,
                         rows.num_logits, rows.draws});
        if (i == 1) batch.back().next_draw = rows.next_draw;
      }
      const auto result = models_[i]->Forward(batch);
      ASSERT_TRUE(result.ok()) << result.status();
      logits[i].assign(result->begin(), result->end());
      const auto tokens = models_[i]->drawn_tokens();
      drawn[i].assign(tokens.begin(), tokens.end());
    }
    ++steps_;
    EXPECT_EQ(drawn[0], drawn[1]) << "step " << steps_;
    ASSERT_EQ(logits[0].size(), logits[1].size());
    EXPECT_TRUE(logits[0].empty() ||
                std::memcmp(logits[0].data(), logits[1].data(),
                            logits[0].size() * sizeof(float)) == 0)
        << "step " << steps_;
    size_t draws = 0;
    for (const auto& [session, rows] : step) {
      session->tokens.insert(session->tokens.end(), rows.tokens.begin(),
                             rows.tokens.end());
      session->last.reset();
      session->next_draw = rows.next_draw;
      for (const auto& draw : rows.draws) {
        session->last.reset();
        if (draw.has_value()) session->last = drawn[0][draws++];
      }
      EXPECT_EQ(session->sequences[1]->length(), session->length());
    }
  }

  // All logits after what the session holds, or has just drawn.
  void CheckLogits(Session* session) {
    Run({{session, {{session->last.value_or(3)}, 1}}});
  }

  QueuedSteps Counts() const { return models_[1]->queued_steps(); }

  std::unique_ptr<kernels::Backend> backends_[kModels];
  std::unique_ptr<LanguageModel> models_[kModels];
  int steps_ = 0;
};

Rows Prompt(std::vector<int32_t> tokens) {
  const int length = static_cast<int>(tokens.size());
  return {std::move(tokens), 1, {DrawAt(length)}, DrawAt(length + 1)};
}

TEST_F(QueuedStepTest, IsUsedByWhoeverGoesOn) {
  const auto first = Open({1, 2, 3});
  const auto second = Open({4, 5});
  Run({{first.get(), Prompt({1, 2, 3})}, {second.get(), Prompt({4, 5})}});
  for (int i = 0; i < 20; ++i) {
    Run({{first.get(), GoOn(*first)}, {second.get(), GoOn(*second)}});
  }
  EXPECT_EQ(Counts(), (QueuedSteps{20, 0}));
  // One stops: the other goes on alone.
  Run({{first.get(), GoOn(*first, false)}, {second.get(), GoOn(*second)}});
  Run({{second.get(), GoOn(*second, false)}});
  EXPECT_EQ(Counts(), (QueuedSteps{22, 0}));
  // Nothing is queued any more.
  Run({{second.get(), GoOn(*second)}});
  EXPECT_EQ(Counts(), (QueuedSteps{22, 0}));
  CheckLogits(second.get());
  CheckLogits(first.get());
  EXPECT_EQ(Counts(), (QueuedSteps{22, 1}));
}

// Sequences that go on are drawn for among others, and after several draws of
// their own.
TEST_F(QueuedStepTest, TakesItsTokensFromWhereTheyAreDrawn) {
  std::vector<std::unique_ptr<Session>> sessions;
  Step step;
  for (int i = 0; i < 6; ++i) {
    sessions.push_back(Open({i, 1, 2}));
    Rows rows = {{i, 1, 2}, 3, {DrawAt(1), absl::nullopt, DrawAt(3)}};
    if (i == 2) rows.draws.clear();
    if (i == 4) rows = {{i, 1, 2}, 0};
    const bool goes_on = i != 0 && i != 2 && i != 4;
    if (goes_on) rows.next_draw = DrawAt(4);
    step.push_back({sessions.back().get(), rows});
  }
  Run(step);
  const auto all_on = [&] {
    return Step({{sessions[1].get(), GoOn(*sessions[1])},
                 {sessions[3].get(), GoOn(*sessions[3])},
                 {sessions[5].get(), GoOn(*sessions[5])}});
  };
  Run(all_on());
  Run(all_on());
  EXPECT_EQ(Counts(), (QueuedSteps{2, 0}));
}

TEST_F(QueuedStepTest, IsDroppedByAnythingElse) {
  const std::vector<int32_t> prompt = {1, 2, 3};
  uint64_t dropped = 0;
  // Does something to a session with a step queued; then looks.
  const auto expect_dropped = [&](const char* what, auto act) {
    SCOPED_TRACE(what);
    auto session = Open(prompt);
    const auto other = Open({9, 9});
    Run({{session.get(), Prompt(prompt)}});
    Run({{session.get(), GoOn(*session)}});
    const uint64_t used = Counts().used;
    act(session.get(), other.get());
    EXPECT_EQ(Counts(), (QueuedSteps{used, ++dropped}));
    CheckLogits(session.get());
    if (Counts().dropped > dropped) ++dropped;
  };
  expect_dropped("another token", [&](Session* session, Session*) {
    Rows rows = GoOn(*session, false);
    rows.tokens[0] = (rows.tokens[0] + 1) % kVocab;
    Run({{session, rows}});
  });
  expect_dropped("another draw", [&](Session* session, Session*) {
    Rows rows = GoOn(*session, false);
    rows.draws[0]->seed = 8;
    Run({{session, rows}});
  });
  expect_dropped("no draw", [&](Session* session, Session*) {
    Run({{session, {{*session->last}, 1}}});
  });
  expect_dropped("no output", [&](Session* session, Session*) {
    Run({{session, {{*session->last}, 0}}});
  });
  expect_dropped("more rows", [&](Session* session, Session*) {
    Run({{session, {{*session->last, 5}, 1, {DrawAt(6)}}}});
  });
  expect_dropped("fewer positions", [&](Session* session, Session*) {
    session->Truncate(3);
    Run({{session, {{*session->last}, 1, {DrawAt(5)}}}});
  });
  expect_dropped("one who joins", [&](Session* session, Session* other) {
    Run({{session, GoOn(*session)}, {other, Prompt({9, 9})}});
  });
  expect_dropped("one who comes before", [&](Session* session, Session* other) {
    Run({{other, {{9}, 0}}, {session, GoOn(*session, false)}});
  });
  expect_dropped("another one", [&](Session*, Session* other) {
    Run({{other, {{9, 8}, 2}}});
  });
  expect_dropped("nothing", [&](Session*, Session*) { Run({}); });
}

TEST_F(QueuedStepTest, IsDroppedWhenOneOfItsSequencesLeaves) {
  auto first = Open({1, 2, 3});
  const auto second = Open({4, 5});
  Run({{first.get(), Prompt({1, 2, 3})}, {second.get(), Prompt({4, 5})}});
  first.reset();
  // Its blocks are another's now, which the queued step has written to.
  const auto third = Open({7});
  Run({{third.get(), Prompt({6, 7, 8, 9})}});
  EXPECT_EQ(Counts(), (QueuedSteps{0, 1}));
  Run({{third.get(), GoOn(*third)}});
  CheckLogits(second.get());
  CheckLogits(third.get());
  EXPECT_EQ(Counts(), (QueuedSteps{1, 2}));
}

TEST_F(QueuedStepTest, IsDroppedWhenTwoChangePlaces) {
  const auto first = Open({1, 2, 3});
  const auto second = Open({1, 2, 3});
  Run({{first.get(), Prompt({1, 2, 3})}, {second.get(), Prompt({1, 2, 3})}});
  Run({{second.get(), GoOn(*second)}, {first.get(), GoOn(*first)}});
  EXPECT_EQ(Counts(), (QueuedSteps{0, 1}));
  CheckLogits(first.get());
  CheckLogits(second.get());
}

// All that is asked for is as promised but for what the sequence holds.
TEST_F(QueuedStepTest, IsDroppedWhenWhatIsBeforeItHasChanged) {
  std::vector<int32_t> others(17, 60);
  const auto giver = Open(others);
  Run({{giver.get(), {others, 1}}});
  giver->Share();
  std::vector<int32_t> prompt(16, 1);
  const auto session = Open({1});
  Run({{session.get(), Prompt(prompt)}});
  session->Truncate(8);
  for (const auto& sequence : session->sequences) {
    EXPECT_EQ(sequence->TakeOver(others, 0).positions, 8);
  }
  session->tokens.assign(16, 60);
  Run({{session.get(), GoOn(*session)}});
  EXPECT_EQ(Counts(), (QueuedSteps{0, 1}));
}

// Likewise, but it is another sequence, most likely in the same place.
TEST_F(QueuedStepTest, IsDroppedForASequenceThatIsJustAsLong) {
  std::vector<int32_t> prompt(16, 1);
  auto session = Open(prompt);
  Run({{session.get(), Prompt(prompt)}});
  session->Share();
  prompt.push_back(*session->last);
  session.reset();
  session = Open(prompt);
  ASSERT_EQ(session->length(), 16);
  session->last = prompt.back();
  Run({{session.get(), GoOn(*session)}});
  EXPECT_EQ(Counts(), (QueuedSteps{0, 1}));
  CheckLogits(session.get());
}

TEST_F(QueuedStepTest, SurvivesABatchThatIsRefused) {
  const auto session = Open({1, 2, 3});
  Run({{session.get(), Prompt({1, 2, 3})}});
  const std::vector<int32_t> unknown = {kVocab};
  EXPECT_EQ(models_[1]
                ->Forward({{session->sequences[1].get(), unknown, 1}})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  Run({{session.get(), GoOn(*session)}});
  EXPECT_EQ(Counts(), (QueuedSteps{1, 0}));
}

TEST_F(QueuedStepTest, ItsPromisesAreChecked) {
  const auto session = Open({1});
  const auto run = [&](const Rows& rows) {
    SequenceRows asked = {session->sequences[1].get(), rows.tokens,
                          rows.num_logits, rows.draws, rows.next_draw};
    models_[1]->Forward({asked}).status().IgnoreError();
  };
  EXPECT_DEATH(run({{1, 2}, 1, {}, DrawAt(3)}),
               "a next draw behind a row that is not drawn");
  EXPECT_DEATH(run({{1, 2}, 2, {DrawAt(1), absl::nullopt}, DrawAt(3)}),
               "a next draw behind a row that is not drawn");
  EXPECT_DEATH(run(Prompt(std::vector<int32_t>(kMaxLength, 1))),
               "a next draw without room for its row");
  run(Prompt(std::vector<int32_t>(kMaxLength - 1, 1)));
  EXPECT_DEATH(models_[1]->final_hidden(),
               "hidden states of a step with next draws");
}

// Sessions come, go, are cut, catch up and draw in other ways; what was
// promised holds most of the time.
TEST_F(QueuedStepTest, RandomCoursesAreTheSame) {
  std::mt19937 random(11);
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  const auto token = [&] { return static_cast<int32_t>(random() % kVocab); };
  std::vector<std::unique_ptr<Session>> sessions;
  // What a session asks for, and what it promises, rightly or not.
  const auto any_rows = [&](const Session& session) {
    Rows rows;
    if (session.last.has_value() && !one_in(8)) {
      rows.tokens = {*session.last};
    } else {
      for (unsigned i = 0; i <= random() % 5; ++i) {
        rows.tokens.push_back(token());
      }
    }
    const int count = static_cast<int>(rows.tokens.size());
    rows.num_logits = one_in(10) ? 0 : one_in(4) ? count : 1;
    const int end = session.length() + count;
    for (int i = rows.num_logits; i > 0; --i) {
      rows.draws.push_back(DrawAt(end + 1 - i, one_in(10) ? 8 : 7));
      if (one_in(10)) rows.draws.back().reset();
    }
    if (!rows.draws.empty() && rows.draws.back().has_value() && !one_in(6)) {
      rows.next_draw = DrawAt(end + 1);
    }
    return rows;
  };
  Step step;
  for (int i = 0; i < kRandomSteps; ++i) {
    const bool goes_on = !step.empty() && !one_in(4);
    step.clear();
    if (!goes_on) {
      if (sessions.size() < 4 && !one_in(3)) {
        sessions.push_back(Open({token(), token()}));
      }
      if (!sessions.empty() && one_in(5)) {
        sessions.erase(sessions.begin() +
                       static_cast<long>(random() % sessions.size()));
      }
      for (const auto& session : sessions) {
        if (!one_in(4) || session->length() == 0) continue;
        session->Truncate(static_cast<int>(
            random() % static_cast<unsigned>(session->length())));
      }
      if (one_in(6)) std::shuffle(sessions.begin(), sessions.end(), random);
    }
    for (const auto& session : sessions) {
      if (session->length() > kMaxLength - 8) session->Truncate(4);
      if (goes_on && session->next_draw.has_value()) {
        step.push_back({session.get(), GoOn(*session, !one_in(8))});
      } else if (!goes_on && !one_in(4)) {
        step.push_back({session.get(), any_rows(*session)});
      }
    }
    for (const auto& session : sessions) session->next_draw.reset();
    ASSERT_NO_FATAL_FAILURE(Run(step));
    if (one_in(20) && !sessions.empty()) {
      CheckLogits(sessions[random() % sessions.size()].get());
      for (const auto& session : sessions) session->next_draw.reset();
      step.clear();
    }
  }
  for (const auto& session : sessions) CheckLogits(session.get());
  EXPECT_GT(Counts().used, kRandomSteps / 4u);
  EXPECT_GT(Counts().dropped, kRandomSteps / 10u);
}

}  // namespace
}  // namespace nacre::model
