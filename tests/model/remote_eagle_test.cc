// An EAGLE draft away from its target: what PyTorch says, with features that
// come in time, late, or never.

#include "model/remote_eagle.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/eagle_projection.h"
#include "model/load_model.h"
#include "tests/model/eagle_golden.h"
#include "tests/model/named_backend.h"

namespace nacre::model {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr int kMaxLength = 40;
constexpr int kSlots = 8;

// The target, what it makes of its features, and a draft that has neither.
struct Pair {
  explicit Pair(const std::string& backend_name, const std::string& kind)
      : backend(NamedBackend(backend_name)),
        other_backend(NamedBackend(backend_name)),
        golden(ReadEagleGolden(kind)) {
    const ModelOptions options = {.kv_cache_bytes = 1 << 18};
    target = *LoadModel(EagleFolder("target"), backend.get(), options);
    auto loaded = EagleProjection::Load(EagleFolder(kind), target.get());
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    projection = *std::move(loaded);
    auto draft = RemoteEagle::Load(EagleFolder(kind), EagleFolder("target"),
                                   other_backend.get(), options);
    EXPECT_TRUE(draft.ok()) << draft.status();
    eagle = *std::move(draft);
    EXPECT_EQ(projection->draft_fingerprint(), eagle->draft_fingerprint());
    EXPECT_EQ(projection->size(), eagle->shape().row_size());
    seen = *eagle->NewTargetSequence(kMaxLength);
    sequence = *eagle->NewTreeSequence(kMaxLength, kSlots, {});
    const auto own = *target->NewSequence(static_cast<int>(prompt().size()));
    const SequenceRows rows = {own.get(), prompt(), 1};
    EXPECT_TRUE(target->Forward({&rows, 1}).ok());
    projection->Project(0, static_cast<int>(prompt().size()), &features);
  }

  const Ids& prompt() const { return golden.prompt; }
  int length() const { return static_cast<int>(prompt().size()); }

  // The features of positions begin..end-1 come.
  void Come(int begin, int end) {
    const size_t size = static_cast<size_t>(eagle->shape().row_size());
    seen->Append(absl::MakeConstSpan(features).subspan(
        static_cast<size_t>(begin) * size,
        static_cast<size_t>(end - begin) * size));
  }
  std::vector<LogitRow> Rows(const SequenceRows& rows) {
    const auto logits = eagle->Forward({&rows, 1});
    EXPECT_TRUE(logits.ok()) << logits.status();
    const size_t vocab = static_cast<size_t>(eagle->info().vocab_size);
    std::vector<LogitRow> result;
    for (size_t at = 0; at < logits->size(); at += vocab) {
      result.emplace_back(logits->begin() + at, logits->begin() + at + vocab);
    }
    return result;
  }
  // Tokens as text, with the logits of all of them.
  std::vector<LogitRow> Feed(absl::Span<const int32_t> ids) {
    return Rows({.sequence = sequence.get(),
                 .token_ids = ids,
                 .num_logits = static_cast<int>(ids.size()),
                 .target = seen.get()});
  }
  std::vector<LogitRow> FeedPrompt(int begin, int end) {
    return Feed(absl::MakeConstSpan(prompt()).subspan(
        static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  }
  // A node after the text (parent kNoSlot), or after another one.
  LogitRow FeedNode(int32_t id, TreeNode node) {
    return Rows({.sequence = sequence.get(),
                 .token_ids = {&id, 1},
                 .num_logits = 1,
                 .nodes = {&node, 1},
                 .target = seen.get()})
        .front();
  }

  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<kernels::Backend> other_backend;
  EagleGolden golden;
  std::unique_ptr<LanguageModel> target;
  std::unique_ptr<EagleProjection> projection;
  std::unique_ptr<RemoteEagle> eagle;
  std::unique_ptr<TargetSequence> seen;
  std::unique_ptr<Sequence> sequence;
  std::vector<float> features;  // of the prompt
};

class RemoteEagleTest : public DraftBackendTest {};

// Guesses are fed as text, as chains are, or in slots.
TEST_P(RemoteEagleTest, SaysWhatPyTorchSays) {
  for (const std::string kind : kEagleKinds) {
    for (const bool in_slots : {false, true}) {
      SCOPED_TRACE(kind);
      Pair pair(GetParam(), kind);
      pair.Come(0, pair.length());
      std::vector<LogitRow> all = pair.FeedPrompt(0, pair.length());
      EXPECT_THAT(all.front(), Each(0)) << "it knows nothing of one token";
      all.erase(all.begin());
      for (size_t i = 0; i < pair.golden.fed.size(); ++i) {
        const int32_t slot = static_cast<int32_t>(i);
        all.push_back(in_slots
                          ? pair.FeedNode(pair.golden.fed[i],
                                          {slot, slot == 0 ? kNoSlot : slot - 1,
                                           pair.length() + slot})
                          : pair.Feed({&pair.golden.fed[i], 1}).front());
      }
      // The first guess stands beside the last token's features here, and in
      // the golden beside what the draft gave.
      if (!in_slots) {
        all.resize(pair.golden.rows.size());
        EXPECT_LE(LargestDifference(all, pair.golden.rows),
                  DraftTolerance(GetParam()));
      } else {
        EXPECT_LE(LargestDifference(all, pair.golden.All()),
                  DraftTolerance(GetParam()));
      }
    }
  }
}

TEST_P(RemoteEagleTest, AChainHasTheBitsOfItsNodes) {
  for (const std::string kind : kEagleKinds) {
    SCOPED_TRACE(kind);
    Pair pair(GetParam(), kind);
    // As the golden: of the last token there are no features.
    pair.Come(0, pair.length() - 1);
    std::vector<LogitRow> all = pair.FeedPrompt(0, pair.length());
    all.erase(all.begin());
    for (const int32_t& id : pair.golden.fed) {
      all.push_back(pair.Feed({&id, 1}).front());
    }
    EXPECT_LE(LargestDifference(all, pair.golden.All()),
              DraftTolerance(GetParam()));
    Pair in_slots(GetParam(), kind);
    in_slots.Come(0, in_slots.length() - 1);
    in_slots.FeedPrompt(0, in_slots.length());
    for (size_t i = 0; i < pair.golden.fed.size(); ++i) {
      const int32_t slot = static_cast<int32_t>(i);
      EXPECT_EQ(in_slots.FeedNode(pair.golden.fed[i],
                                  {slot, slot == 0 ? kNoSlot : slot - 1,
                                   pair.length() + slot}),
                all[pair.golden.rows.size() + i])
          << i;
    }
  }
}

// Whatever was fed before its features, and how the prompt came in parts: once
// they are there the draft says what it would have said with all in time.
TEST_P(RemoteEagleTest, LateFeaturesAreMadeUpFor) {
  for (const std::string kind : {"specforge", "eagle1", "speculators_normed"}) {
    SCOPED_TRACE(kind);
    Pair in_time(GetParam(), kind);
    const int length = in_time.length();
    in_time.Come(0, length - 1);
    const LogitRow last = in_time.FeedPrompt(0, length).back();
    for (const int late : {1, 2, 4}) {
      SCOPED_TRACE(late);
      Pair pair(GetParam(), kind);
      const int known = length - 1 - late;
      pair.Come(0, 2);
      pair.FeedPrompt(0, 3);
      pair.Come(2, known);
      pair.FeedPrompt(3, known + 1);
      // One at a time, as a drafting session does.
      for (int i = known + 1; i < length - 1; ++i) {
        pair.FeedPrompt(i, i + 1);
      }
      EXPECT_NE(pair.FeedPrompt(length - 1, length).front(), last);
      pair.sequence->Truncate(length - 1);
      if (late > 1) {
        pair.Come(known, known + 1);
        EXPECT_NE(pair.FeedPrompt(length - 1, length).front(), last)
            << "one more is not all";
        pair.sequence->Truncate(length - 1);
      }
      pair.Come(late > 1 ? known + 1 : known, length - 1);
      EXPECT_EQ(pair.FeedPrompt(length - 1, length).front(), last);
    }
  }
}

// What was kept of a tree stands beside guesses at first.
TEST_P(RemoteEagleTest, AKeptPathIsComputedAnewOnceItsFeaturesAreThere) {
  Pair in_time(GetParam(), "safeailab");
  const int length = in_time.length();
  in_time.Come(0, length - 1);
  const LogitRow last = in_time.FeedPrompt(0, length).back();
  Pair pair(GetParam(), "safeailab");
  const int known = length - 3;  // tokens
  pair.Come(0, known - 1);
  pair.FeedPrompt(0, known);
  // Beside another guess.
  pair.FeedNode(1, {5, kNoSlot, known});
  pair.FeedNode(pair.prompt()[static_cast<size_t>(known)], {3, kNoSlot, known});
  pair.FeedNode(pair.prompt()[static_cast<size_t>(known) + 1],
                {0, 3, known + 1});
  const Ids path = {3, 0};
  EXPECT_THAT(pair.sequence->KeepPath(known + 1, path).message(),
              HasSubstr("a sequence of"));
  ASSERT_TRUE(pair.sequence->KeepPath(known, path).ok());
  ASSERT_TRUE(pair.sequence->KeepPath(known, path).ok()) << "repeated";
  EXPECT_EQ(pair.sequence->length(), length - 1);
  // The next one stands beside what the last node of the path gave.
  Pair chain(GetParam(), "safeailab");
  chain.Come(0, known - 1);
  chain.FeedPrompt(0, known);
  for (int i = known; i < length - 1; ++i) chain.FeedPrompt(i, i + 1);
  EXPECT_EQ(pair.FeedPrompt(length - 1, length),
            chain.FeedPrompt(length - 1, length));
  pair.sequence->Truncate(length - 1);
  pair.Come(known - 1, length - 1);
  EXPECT_EQ(pair.FeedPrompt(length - 1, length).front(), last);
}

// Of a long text, rows that were read are given back: never what the next token
// stands beside, whichever that is.
TEST_P(RemoteEagleTest, AGuessBesideFeaturesMayBeAnotherOne) {
  Pair pair(GetParam(), "specforge");
  constexpr int kLong = 50;
  const auto seen = *pair.eagle->NewTargetSequence(kLong + 10);
  const auto sequence = *pair.eagle->NewSequence(kLong + 10);
  const size_t size = static_cast<size_t>(pair.eagle->shape().row_size());
  const auto feed = [&](const Ids& ids) {
    return pair.Rows({.sequence = sequence.get(),
                      .token_ids = ids,
                      .num_logits = 1,
                      .target = seen.get()});
  };
  feed(Ids(1, 3));
  for (int i = 1; i < kLong; ++i) {
    seen->Append(absl::MakeConstSpan(pair.features).first(size));
    const auto first = feed(Ids(1, 3));
    sequence->Truncate(i);
    EXPECT_NE(feed(Ids(1, 4)), first);
    sequence->Truncate(i);
    ASSERT_EQ(feed(Ids(1, 3)), first) << i;
  }
}

// Rows in the middle are computed anew, and those after them, of guesses, stay.
TEST_P(RemoteEagleTest, FeaturesOfTheTextLeaveGuessesAfterItAlone) {
  Pair pair(GetParam(), "specforge");
  const int length = pair.length();
  pair.Come(0, 3);
  pair.FeedPrompt(0, 4);
  for (int i = 4; i < 8; ++i) pair.FeedPrompt(i, i + 1);
  pair.Come(3, 5);
  EXPECT_TRUE(std::isfinite(pair.FeedPrompt(8, 9).front().front()));
  EXPECT_EQ(pair.sequence->length(), 9);
  pair.Come(5, length - 1);
  pair.FeedPrompt(9, length - 1);
  Pair in_time(GetParam(), "specforge");
  in_time.Come(0, length - 1);
  EXPECT_EQ(pair.FeedPrompt(length - 1, length).front(),
            in_time.FeedPrompt(0, length).back());
}

// A target that took a beginning over has no features of it.
TEST_P(RemoteEagleTest, BeginsWithTheFeaturesThatThereAre) {
  Pair pair(GetParam(), "specforge");
  const int length = pair.length();
  EXPECT_TRUE(pair.seen->SkipTo(0));
  EXPECT_FALSE(pair.seen->SkipTo(kMaxLength + 1));
  ASSERT_TRUE(pair.seen->SkipTo(5));
  EXPECT_EQ(pair.seen->length(), 5);
  pair.FeedPrompt(0, 3);
  pair.Come(5, length - 1);
  EXPECT_FALSE(pair.seen->SkipTo(length + 3)) << "not in the middle";
  const auto rows = pair.FeedPrompt(3, length);
  EXPECT_THAT(rows[2], Each(0)) << "of token 5";
  // As where the text begins there, but for where it stands.
  Pair other(GetParam(), "specforge");
  const auto from_there = *other.eagle->NewSequence(kMaxLength);
  other.Come(5, length - 1);
  const auto expected =
      other.Rows({.sequence = from_there.get(),
                  .token_ids = absl::MakeConstSpan(other.prompt()).subspan(5),
                  .num_logits = length - 6,
                  .target = other.seen.get()});
  EXPECT_EQ(std::vector<LogitRow>(rows.begin() + 3, rows.end()), expected);
}

// As the check of a device asks it: without any features.
TEST_P(RemoteEagleTest, SaysTheSameWithoutFeatures) {
  Pair pair(GetParam(), "eagle1");
  const auto first = pair.Rows({pair.sequence.get(), pair.prompt(), 1});
  const auto other = *pair.eagle->NewSequence(kMaxLength);
  EXPECT_EQ(pair.Rows({other.get(), pair.prompt(), 1}), first);
}

TEST_P(RemoteEagleTest, RefusesWhatItCannotBeFed) {
  Pair pair(GetParam(), "specforge");
  const int32_t id = pair.eagle->info().vocab_size;
  const SequenceRows outside = {pair.sequence.get(), {&id, 1}, 1};
  EXPECT_THAT(pair.eagle->Forward({&outside, 1}).status().message(),
              HasSubstr("outside the vocabulary"));
  pair.FeedPrompt(0, 3);
  const int32_t token = 1;
  const TreeNode orphan = {1, 2, 4};
  const SequenceRows no_parent = {.sequence = pair.sequence.get(),
                                  .token_ids = {&token, 1},
                                  .num_logits = 1,
                                  .nodes = {&orphan, 1}};
  EXPECT_TRUE(
      absl::IsInvalidArgument(pair.eagle->Forward({&no_parent, 1}).status()));
  const TreeNode far = {1, kNoSlot, pair.eagle->info().context_length};
  const SequenceRows too_far = {.sequence = pair.sequence.get(),
                                .token_ids = {&token, 1},
                                .num_logits = 1,
                                .nodes = {&far, 1}};
  EXPECT_THAT(pair.eagle->Forward({&too_far, 1}).status().message(),
              HasSubstr("outside the model's context"));
  EXPECT_THAT(pair.eagle->NewSequence(0).status().message(),
              HasSubstr("outside the model's context"));
  EXPECT_THAT(pair.eagle->NewTreeSequence(4, -1, {}).status().message(),
              HasSubstr("slots"));
  std::vector<std::unique_ptr<Sequence>> others;
  absl::Status status;
  while (status.ok()) {
    auto sequence = pair.eagle->NewTreeSequence(8, 1024, {});
    status = sequence.status();
    if (status.ok()) others.push_back(*std::move(sequence));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_LT(pair.eagle->kv_free_tokens(), 1024 + 8);
}

TEST(RemoteEagleLagTest, IsWhatTheCardSaysOrElseWhatItWasTrainedFor) {
  const auto backend = NamedBackend("cpu");
  const auto load = [&](const std::string& folder) {
    return RemoteEagle::Load(folder, EagleFolder("target"), backend.get(),
                             {.kv_cache_bytes = 1 << 18});
  };
  EXPECT_EQ((*load(EagleFolder("safeailab")))->max_lag(), 7);
  EXPECT_EQ((*load(EagleFolder("eagle1")))->max_lag(), 5);
  const std::string folder = CopyOfEagle("specforge", "eagle_lag");
  const auto write = [&](const std::string& lag) {
    nacre::testing::WriteFile(folder + "/nacre_draft.json",
                              "{\"max_lag\": " + lag + "}");
  };
  write("11");
  EXPECT_EQ((*load(folder))->max_lag(), 11);
  for (const std::string lag : {"0", "33", "\"4\""}) {
    write(lag);
    const absl::Status status = load(folder).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.ToString(), HasSubstr("max_lag"));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, RemoteEagleTest,
                         ::testing::Values(NACRE_DRAFT_BACKENDS),
                         NameOfBackend);

}  // namespace
}  // namespace nacre::model
