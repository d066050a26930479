// The target's own drafts, from heads over its hidden states: right or wrong,
// they change no token, and what they cost is bounded.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "model/future_heads.h"
#include "tests/target_worker/own_drafts_fixture.h"
#include "tests/target_worker/target_fixture.h"

namespace nacre::target_worker {
namespace {

using Ids = std::vector<int32_t>;
using Row = std::vector<float>;

constexpr int kHeads = 4;

// Heads that know what the target will say of the texts that they were told:
// each says the target's own logits of its position, or noise.
class KnowingHeads : public model::FutureHeads {
 public:
  void Know(const nacre::testing::TableModel& model, const Ids& text) {
    model_ = &model;
    for (size_t length = 1; length < text.size(); ++length) {
      const Ids fed(text.begin(), text.begin() + static_cast<int>(length));
      places_[model.Logits(fed)] = {text, length};
    }
  }

  int count() const override { return kHeads; }
  absl::Span<const float> Run(absl::Span<const float> hidden) override {
    ++num_runs;
    if (on_run) on_run();
    const size_t vocab = static_cast<size_t>(model_->info().vocab_size);
    const size_t rows = hidden.size() / vocab;
    EXPECT_LE(rows, static_cast<size_t>(kMaxRows));
    logits_.clear();
    for (size_t k = 0; k < kHeads; ++k) {
      for (size_t row = 0; row < rows; ++row) {
        const absl::Span<const float> said = hidden.subspan(row * vocab, vocab);
        AddLogits(Row(said.begin(), said.end()), k);
      }
    }
    return logits_;
  }

  int percent_right = 100;
  float blur = 0;     // of the right logits: then others may seem likelier
  int32_t says = -1;  // this token alone, whatever it knows; -1: what it knows
  std::function<void()> on_run;
  int num_runs = 0;
  int num_known = 0;

 private:
  void AddLogits(const Row& hidden, size_t k) {
    if (says >= 0) {
      Row row(static_cast<size_t>(model_->info().vocab_size), 0.0f);
      row[static_cast<size_t>(says)] = 1e6f;
      logits_.insert(logits_.end(), row.begin(), row.end());
      return;
    }
    const auto place = places_.find(hidden);
    if (place != places_.end() &&
        static_cast<int>(random_() % 100) < percent_right) {
      const auto& [text, fed] = place->second;
      // The model says the token after what was fed, head 0 the next one.
      if (fed + 1 + k < text.size()) {
        Row row = model_->Logits(absl::MakeConstSpan(text).first(fed + 1 + k));
        for (float& logit : row) {
          if (blur == 0) break;
          logit += blur * static_cast<float>(random_() % 1000) * 0.001f;
        }
        logits_.insert(logits_.end(), row.begin(), row.end());
        ++num_known;
        return;
      }
    }
    for (int id = 0; id < model_->info().vocab_size; ++id) {
      logits_.push_back(static_cast<float>(random_() % 1000) * 0.01f);
    }
  }

  const nacre::testing::TableModel* model_ = nullptr;
  std::map<Row, std::pair<Ids, size_t>> places_;
  std::mt19937_64 random_{7};
  Row logits_;
};

struct HeadsHolder {
  KnowingHeads heads;
};

struct Heads : HeadsHolder, TargetFixture {
  // `percent_a_row`: what a row more costs, of a step of one.
  explicit Heads(nacre::testing::TableModelOptions model_options,
                 int percent_a_row = 1, const speculation::TreeSpec& tree = {},
                 bool with_suffixes = false)
      : TargetFixture(std::move(model_options), {}, nullptr, nullptr, true, 0,
                      [&](TargetEngine::Options* options) {
                        options->heads = &heads;
                        options->head_tree = tree;
                        options->suffixes = with_suffixes;
                      }) {
    // A look takes no time of this clock, which goes on when it is read.
    heads.on_run = [this] { now_ns -= 10; };
    engine->LearnStepTimes(std::vector<worker::StepTime>{
        {1, 10}, {512, 10 + 511 * int64_t{percent_a_row} / 10}});
  }

  // Returns what ar says, which the heads know.
  Ids Begin(const OpenTarget& open) {
    Ids said = Autoregressive(model, open);
    heads.Know(model, said);
    Open(open);
    return said;
  }

  int Accepted() const {
    int accepted = 0;
    for (const speculation::Verdict& verdict : verdicts) {
      accepted += verdict.suffix_accepted;
    }
    return accepted;
  }

  int Proposed() const {
    int proposed = 0;
    for (const speculation::Verdict& verdict : verdicts) {
      proposed += verdict.suffix_proposed;
    }
    return proposed;
  }
};

// Two at a time, at each temperature, with slots and without, from heads that
// are never right, sometimes and always, with suffixes beside them and without.
TEST(TargetEngineHeads, ChangeNoToken) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const speculation::TreeSpec tree =
        seed % 5 == 0 ? *speculation::ParseTreeSpec(
                            "static:[[0],[1],[2],[0,0],[1,0],[0,0,1]]")
                      : speculation::TreeSpec();
    Heads fixture(ShowingModel(seed), static_cast<int>(seed % 3), tree,
                  /*with_suffixes=*/seed % 2 == 0);
    fixture.heads.percent_right = static_cast<int>(seed % 4) * 33;
    std::map<uint64_t, Ids> said;
    for (uint64_t id = 1; id <= 2; ++id) {
      OpenTarget open = OwnDraftsOpen(id, seed);
      open.sampling.temperature = kOwnDraftsTemperatures[seed % 3];
      open.sampling.repetition_penalty = seed % 7 == 0 ? 1.2f : 1.0f;
      open.num_slots = kOwnDraftsSlots[seed / 4 % 4];
      if (seed % 8 == 0) open.logprobs = 2;
      said[id] = fixture.Begin(open);
    }
    for (uint64_t id = 1; id <= 2; ++id) {
      fixture.RunToEnd(id);
      EXPECT_EQ(fixture.tokens[id], said[id]);
    }
    accepted += fixture.Accepted();
  }
  EXPECT_GT(accepted, 60 * 2 * 60 / 4);
}

// The second candidate is often right where the first is not.
TEST(TargetEngineHeads, ATreeInFewSlotsSavesSteps) {
  std::map<int, size_t> steps;
  for (const int num_slots : {0, 16}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      Heads fixture(ShowingModel(seed));
      fixture.heads.blur = 3;
      OpenTarget open = OwnDraftsOpen(1, seed, 80);
      open.sampling.temperature = 0.8f;
      open.ignore_eos = true;
      open.num_slots = num_slots;
      const Ids said = fixture.Begin(open);
      fixture.RunToEnd(1);
      EXPECT_EQ(fixture.tokens[1], said);
      steps[num_slots] += fixture.verdicts.size();
    }
  }
  EXPECT_LT(steps[16] * 10, steps[0] * 9);
}

TEST(TargetEngineHeads, GoWithDraftsThatComeAndGo) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Heads fixture(ShowingModel(seed));
    fixture.heads.percent_right = 60;
    OpenTarget open = OwnDraftsOpen(1, seed, 80);
    open.sampling.temperature = kOwnDraftsTemperatures[seed % 3];
    open.plan = {static_cast<int>(random() % 3), 0, 4, 0};
    open.has_draft = true;
    open.epoch = 1;
    open.num_slots = kOwnDraftsSlots[seed % 4];
    const Ids said = fixture.Begin(open);
    fixture.RunWithTails(said, random);
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_EQ(fixture.tokens[1], said);
    accepted += fixture.Accepted();
  }
  EXPECT_GT(accepted, 100);
}

// Heads that say the target's own logits: ranked by the noise of the position
// that each head speaks of, the first candidate is the target's token at any
// temperature. By any other noise it is not.
TEST(TargetEngineHeads, ACandidateIsRankedByTheNoiseOfItsPosition) {
  for (const float temperature : kOwnDraftsTemperatures) {
    SCOPED_TRACE(temperature);
    Heads fixture(ShowingModel(4, 2048));
    OpenTarget open = OwnDraftsOpen(1, 4, 100);
    open.sampling.temperature = temperature;
    open.ignore_eos = true;
    const Ids said = fixture.Begin(open);
    fixture.RunToEnd(1);
    EXPECT_EQ(fixture.tokens[1], said);
    int rows = 0;
    for (const speculation::Verdict& verdict : fixture.verdicts) {
      EXPECT_EQ(verdict.suffix_accepted, verdict.suffix_proposed)
          << "without slots the proposal is the chain of first candidates";
      rows += verdict.suffix_proposed;
    }
    EXPECT_GT(rows, 100 / 4);
  }
}

// More than fit one call of the heads.
TEST(TargetEngineHeads, EachSessionHasItsOwnRow) {
  Heads fixture(ShowingModel(6, 1024), /*percent_a_row=*/0);
  std::map<uint64_t, Ids> said;
  for (uint64_t id = 1; id <= 2 * model::FutureHeads::kMaxRows + 3; ++id) {
    OpenTarget open = OwnDraftsOpen(id, 6, 40);
    open.sampling.temperature = 1.0f;
    open.ignore_eos = true;
    said[id] = fixture.Begin(open);
  }
  for (const auto& [id, tokens] : said) {
    fixture.RunToEnd(id);
    EXPECT_EQ(fixture.tokens[id], tokens);
  }
  int proposed = 0;
  for (const speculation::Verdict& verdict : fixture.verdicts) {
    proposed += verdict.suffix_proposed;
  }
  EXPECT_GE(fixture.Accepted(), proposed * 95 / 100);
  EXPECT_GT(proposed, static_cast<int>(said.size()) * 40 / 3);
}

TEST(TargetEngineHeads, AreCountedWithTheTargetsOwn) {
  Heads fixture(ShowingModel(2));
  fixture.Begin(OwnDraftsOpen(1, 2));
  fixture.RunToEnd(1);
  EXPECT_GT(fixture.Accepted(), 0);
  EXPECT_EQ(fixture.engine->stats().suffix_accepted,
            static_cast<uint64_t>(fixture.Accepted()));
}

TEST(TargetEngineHeads, OnlyOfRequestsThatAllowThem) {
  Heads fixture(ShowingModel(2));
  OpenTarget off = OwnDraftsOpen(1, 2);
  off.suffixes.reset();
  OpenTarget ratio = OwnDraftsOpen(2, 2);
  ratio.verification = speculation::Verification::kRatio;
  for (const OpenTarget& open : {off, ratio}) {
    fixture.Begin(open);
    fixture.RunToEnd(open.session_id);
  }
  EXPECT_EQ(fixture.heads.num_runs, 0);
  for (const speculation::Verdict& verdict : fixture.verdicts) {
    EXPECT_EQ(verdict.window, 0);
  }
}

// Half a step once and a hundredth of each step is what they may cost: a look
// that takes two steps is never made again in so short an answer, and wrong
// heads are looked at less and less.
TEST(TargetEngineHeads, WhatALookCostsIsBounded) {
  const auto runs = [](int percent_of_a_step, int percent_right) {
    Heads fixture(ShowingModel(2), /*percent_a_row=*/0);
    fixture.heads.percent_right = percent_right;
    fixture.heads.on_run = [&fixture, percent_of_a_step] {
      fixture.now_ns += percent_of_a_step / 10 - 10;
    };
    OpenTarget open = OwnDraftsOpen(1, 2, 200);
    open.ignore_eos = true;
    const Ids said = fixture.Begin(open);
    fixture.RunToEnd(1);
    EXPECT_EQ(fixture.tokens[1], said);
    EXPECT_GT(fixture.heads.num_runs, 0);
    return fixture.heads.num_runs;
  };
  EXPECT_EQ(runs(200, 0), 1);
  EXPECT_LE(runs(50, 0), 1 + 2 + 200 / 50);
  EXPECT_GT(runs(50, 100), 20);
}

// A look that took six steps, more than a session can ever have saved, is not
// what looks cost for ever.
TEST(TargetEngineHeads, ADisturbedLookIsForgotten) {
  Heads fixture(ShowingModel(2), /*percent_a_row=*/0);
  fixture.heads.on_run = [&fixture] {
    fixture.now_ns += fixture.heads.num_runs == 1 ? 60 - 10 : 1 - 10;
  };
  OpenTarget open = OwnDraftsOpen(1, 2, 900);
  open.ignore_eos = true;
  const Ids said = fixture.Begin(open);
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.tokens[1], said);
  EXPECT_GT(fixture.heads.num_runs, 20);
}

// A call of 30 % of a step is too much for one of eight sessions, but not for
// all of them.
TEST(TargetEngineHeads, SessionsShareACall) {
  Heads fixture(ShowingModel(2), /*percent_a_row=*/0);
  fixture.heads.percent_right = 0;
  fixture.heads.on_run = [&fixture] { fixture.now_ns += 3 - 10; };
  fixture.Begin(OwnDraftsOpen(1, 2, 20));
  fixture.RunToEnd(1);
  const int alone = fixture.heads.num_runs;
  EXPECT_GT(alone, 0);
  for (uint64_t id = 2; id <= 9; ++id) {
    OpenTarget open = OwnDraftsOpen(id, 2, 40);
    open.ignore_eos = true;
    fixture.Begin(open);
  }
  for (uint64_t id = 2; id <= 9; ++id) fixture.RunToEnd(id);
  EXPECT_GT(fixture.heads.num_runs, alone);
}

// A request with heads that are wrong, after one with heads that were right:
// what that one has earned pays for a few looks more. While it is open that is
// what its account has no room for.
TEST(TargetEngineHeads, ARequestLooksWithWhatOthersHaveEarned) {
  const auto runs = [](int percent_right, int tokens, bool closes) {
    Heads fixture(ShowingModel(2, 1024), /*percent_a_row=*/0);
    fixture.heads.on_run = [&fixture] { fixture.now_ns += 4 - 10; };
    fixture.heads.percent_right = percent_right;
    fixture.Begin(OwnDraftsOpen(1, 2, tokens));
    if (closes) {
      RunAndClose(&fixture, 1);
    } else {
      fixture.RunToEnd(1);
    }
    const int before = fixture.heads.num_runs;
    fixture.heads.percent_right = 0;
    fixture.Begin(OwnDraftsOpen(2, 2, 100));
    fixture.RunToEnd(2);
    return fixture.heads.num_runs - before;
  };
  const int alone = runs(0, 60, true);
  EXPECT_LE(alone, 4);
  EXPECT_EQ(runs(100, 12, false), alone) << "its account has room";
  const double most = speculation::SuffixAccount::kMostDrawn / 0.4 + 1;
  for (const int helped : {runs(100, 12, true), runs(100, 60, false)}) {
    EXPECT_GE(helped, alone + 4);
    EXPECT_LE(helped, alone + most);
  }
}

// A look that takes more than a request has: it gets what it lacks, and
// something for rows.
TEST(TargetEngineHeads, WhatOthersHaveEarnedPaysForRowsToo) {
  const auto proposed = [](int look_ns, int longer_ns, int percent_a_row,
                           bool closes) {
    Heads fixture(ShowingModel(4, 1024), percent_a_row);
    int next_ns = look_ns;
    fixture.heads.on_run = [&] {
      fixture.now_ns += next_ns - 10;
      next_ns = look_ns;
    };
    fixture.Begin(OwnDraftsOpen(1, 4, 200));
    fixture.RunToEnd(1);
    EXPECT_GT(fixture.Accepted(), 50);
    if (closes) RunAndClose(&fixture, 1);
    const int before = fixture.Proposed();
    next_ns += longer_ns;
    fixture.Begin(OwnDraftsOpen(2, 4, 3));
    fixture.RunToEnd(2);
    return fixture.Proposed() - before;
  };
  EXPECT_GT(proposed(5, 0, 0, false), 0);
  EXPECT_GT(proposed(6, 0, 0, true), 0) << "more than its credit";
  EXPECT_GT(proposed(6, 0, 2, true), 0) << "rows cost something";
  EXPECT_GT(proposed(5, 100, 0, true), 0) << "longer than the last ones";
}

// What is saved for a look is not all that it takes to gain by it.
TEST(TargetEngineHeads, NoLookWhereNoRowCanBePaidAfterIt) {
  Heads fixture(ShowingModel(4, 1024), /*percent_a_row=*/2);
  fixture.heads.on_run = [&fixture] { fixture.now_ns += 6 - 10; };
  fixture.Begin(OwnDraftsOpen(1, 4, 300));
  fixture.RunToEnd(1);
  EXPECT_GT(fixture.Accepted(), 0);
}

// Suffixes that are right beside heads that never are: what they earn makes no
// other request look.
TEST(TargetEngineHeads, WhatSuffixesEarnPaysForNoOnesLooks) {
  const auto runs = [](bool with_suffixes_before) {
    Heads fixture(ShowingModel(2, 1024), /*percent_a_row=*/0,
                  *speculation::ParseTreeSpec("static:[[0]]"),
                  /*with_suffixes=*/true);
    fixture.heads.on_run = [&fixture] { fixture.now_ns += 4 - 10; };
    fixture.heads.says = 1000;
    for (uint64_t id = 1; id <= 2; ++id) {
      OpenTarget open = OwnDraftsOpen(id, 2, 300);
      if (with_suffixes_before) {
        open.sampling.logit_bias = {{1, 50.0f}, {2, 50.0f}};
      }
      fixture.Begin(open);
      RunAndClose(&fixture, id);
    }
    EXPECT_EQ(fixture.Accepted() > 300, with_suffixes_before);
    const int before = fixture.heads.num_runs;
    fixture.Begin(OwnDraftsOpen(3, 2, 100));
    fixture.RunToEnd(3);
    return fixture.heads.num_runs - before;
  };
  EXPECT_EQ(runs(true), runs(false));
}

// Where rows cost too much for any token no head is asked.
TEST(TargetEngineHeads, NoLookWhereNoRowPays) {
  Heads fixture(ShowingModel(2), /*percent_a_row=*/400);
  OpenTarget open = OwnDraftsOpen(1, 2, 60);
  open.ignore_eos = true;
  fixture.Begin(open);
  fixture.RunToEnd(1);
  EXPECT_LE(fixture.heads.num_runs, 2) << "until a step was planned";
}

TEST(TargetEngineHeads, UnsoundHeadsSayNothing) {
  class Broken : public model::FutureHeads {
   public:
    int count() const override { return 2; }
    absl::Span<const float> Run(absl::Span<const float> hidden) override {
      logits_.assign(2 * hidden.size(),
                     std::numeric_limits<float>::quiet_NaN());
      return logits_;
    }

   private:
    Row logits_;
  };
  Broken broken;
  TargetFixture fixture(
      ShowingModel(2), {}, nullptr, nullptr, true, 0,
      [&broken](TargetEngine::Options* options) { options->heads = &broken; });
  const OpenTarget open = OwnDraftsOpen(1, 2);
  fixture.Open(open);
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.tokens[1], Autoregressive(fixture.model, open));
}

}  // namespace
}  // namespace nacre::target_worker
