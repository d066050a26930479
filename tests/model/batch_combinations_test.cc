// Batch invariance of a whole model in combination: every row of a step has the
// bits of that row fed alone, whatever the number of rows, of sessions, the
// chunks in which prompts were read, the threads, the type of the weights and
// that of keys and values.

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "model/load_model.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

constexpr int kMaxRows = 33;
constexpr std::array<int, 4> kChunks = {1, 7, 64, 512};
// Positions after which the sessions' rows stand: around the edges of KV
// blocks and of the stretches in which attention adds up.
constexpr std::array<int, 9> kPromptLengths = {530, 1,   15,  16, 63,
                                               65,  129, 200, 257};
constexpr int kMaxSessions = static_cast<int>(kPromptLengths.size());
// The session after them is a guest that reads its prompt beside their rows.
constexpr int kGuest = kMaxSessions;
constexpr int kGuestLength = 520;

// Large enough that every op is worth two threads, with a tail in every vector,
// group of inputs and unit of outputs, and 3 query heads for a KV head.
nacre::testing::TinyCheckpoint Shape() {
  nacre::testing::TinyCheckpoint shape;
  shape.hidden_size = 172;
  shape.intermediate_size = 345;
  shape.num_attention_heads = 6;
  shape.num_key_value_heads = 2;
  shape.head_dim = 34;
  shape.vocab_size = 517;
  shape.max_position_embeddings = 1024;
  return shape;
}

struct Types {
  const char* weights;
  const char* kv;
};

int Length(int session) {
  return session == kGuest ? kGuestLength : kPromptLengths[session] + kMaxRows;
}

// One model, its sessions, and the logits that each of their rows must have.
class Batches {
 public:
  Batches(const std::string& dir, const Types& types, int threads)
      : backend_(kernels::MakeBackend(
            "cpu", types.weights,
            kernels::AllowedCores(static_cast<size_t>(threads)), types.kv)),
        model_(*LoadModel(dir, backend_.get(), {1 << 24, {}})),
        vocab_(static_cast<size_t>(model_->info().vocab_size)) {
    for (int session = 0; session <= kGuest; ++session) {
      std::mt19937 rng(static_cast<uint32_t>(session));
      for (int i = 0; i < Length(session); ++i) {
        tokens_[session].push_back(static_cast<int32_t>(rng() % vocab_));
      }
      sequences_[session] = *model_->NewSequence(Length(session));
    }
  }

  // Feeds every session token by token, alone: what is expected of all others.
  void Record() {
    for (int session = 0; session <= kGuest; ++session) {
      std::vector<float>& all = expected_[session];
      for (int row = 0; row < Length(session); ++row) {
        Add(session, 1);
        const absl::Span<const float> logits = Forward();
        all.insert(all.end(), logits.begin(), logits.end());
      }
    }
  }
  void ExpectAsIn(const Batches& other) { expected_ = other.expected_; }

  // Reads all prompts from the start, a chunk of each in every step.
  void Prefill(int chunk) {
    for (const auto& sequence : sequences_) sequence->Truncate(0);
    for (bool done = false; !done;) {
      done = true;
      for (int session = 0; session < kMaxSessions; ++session) {
        const int left =
            kPromptLengths[session] - sequences_[session]->length();
        if (left <= 0) continue;
        Add(session, std::min(left, chunk));
        done = false;
      }
      Check("prompts in chunks of " + std::to_string(chunk));
    }
  }

  // One step of `rows` rows of `sessions` sessions in random shares and order,
  // first alone, then beside a guest's prompt of which a chunk is read.
  void Step(int rows, int sessions, int chunk, std::mt19937* rng) {
    const std::string what =
        std::to_string(rows) + " rows of " + std::to_string(sessions) +
        " sessions, prompts in chunks of " + std::to_string(chunk);
    std::array<int, kMaxSessions> order;
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), *rng);
    std::vector<int> shares(static_cast<size_t>(sessions), 1);
    for (int i = sessions; i < rows; ++i) ++shares[(*rng)() % shares.size()];
    for (const bool with_guest : {false, true}) {
      const size_t guest_at = (*rng)() % (shares.size() + 1);
      for (size_t i = 0; i <= shares.size(); ++i) {
        if (with_guest && i == guest_at) AddGuest(chunk);
        if (i < shares.size()) Add(order[i], shares[i]);
      }
      Check(what + (with_guest ? ", one is read beside them" : ""));
      for (int session = 0; session < kMaxSessions; ++session) {
        sequences_[session]->Truncate(kPromptLengths[session]);
      }
    }
  }

 private:
  void Add(int session, int count) {
    const int begin = sequences_[session]->length();
    batch_.push_back(
        {sequences_[session].get(),
         absl::MakeConstSpan(tokens_[session])
             .subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
         count});
    rows_.push_back({session, begin, count});
  }

  void AddGuest(int chunk) {
    if (sequences_[kGuest]->length() == kGuestLength) {
      sequences_[kGuest]->Truncate(0);
    }
    Add(kGuest, std::min(chunk, kGuestLength - sequences_[kGuest]->length()));
  }

  absl::Span<const float> Forward() {
    const auto logits = model_->Forward(batch_);
    EXPECT_TRUE(logits.ok()) << logits.status();
    batch_.clear();
    rows_.clear();
    return *logits;
  }

  void Check(const std::string& what) {
    const std::vector<Rows> rows = rows_;
    const absl::Span<const float> logits = Forward();
    size_t offset = 0;
    for (const Rows& part : rows) {
      for (int i = 0; i < part.count; ++i, offset += vocab_) {
        const size_t row = static_cast<size_t>(part.begin + i);
        ASSERT_EQ(std::memcmp(logits.data() + offset,
                              expected_[part.session].data() + row * vocab_,
                              vocab_ * sizeof(float)),
                  0)
            << what << ": row " << row << " of session " << part.session;
      }
    }
    ASSERT_EQ(offset, logits.size()) << what;
  }

  struct Rows {
    int session;
    int begin;
    int count;
  };

  const std::unique_ptr<kernels::Backend> backend_;
  const std::unique_ptr<LanguageModel> model_;
  const size_t vocab_;
  std::array<std::vector<int32_t>, kGuest + 1> tokens_;
  std::array<std::vector<float>, kGuest + 1> expected_;  // [length, vocab]
  std::array<std::unique_ptr<Sequence>, kGuest + 1> sequences_;
  std::vector<SequenceRows> batch_;
  std::vector<Rows> rows_;  // of batch_
};

// The types and a SIMD target.
class BatchCombinationsTest
    : public ::testing::TestWithParam<std::tuple<Types, int64_t>> {
 protected:
  void SetUp() override {
    if (kernels::AllowedCores(2).size() < 2) {
      GTEST_SKIP() << "this process has one core";
    }
  }

  // Calls step(batches, chunk, threads) with the prompts read in chunks.
  template <class Step>
  void ForEachChunkAndThreads(const Step& step) {
    const kernels::ForcedTarget target(std::get<1>(GetParam()));
    const std::string dir = nacre::testing::TestFolder("combinations");
    nacre::testing::WriteTinyCheckpoint(Shape(), dir);
    Batches one(dir, std::get<0>(GetParam()), 1);
    one.Record();
    Batches two(dir, std::get<0>(GetParam()), 2);
    two.ExpectAsIn(one);
    for (Batches* batches : {&one, &two}) {
      for (size_t i = 0; i < kChunks.size(); ++i) {
        batches->Prefill(kChunks[i]);
        step(*batches, i);
        if (HasFatalFailure()) return;
      }
    }
  }
};

// Every number of rows with every number of sessions, and each of them with
// every chunk; all of it for both numbers of threads.
TEST_P(BatchCombinationsTest, EveryPairHasTheBitsOfRowsAlone) {
  std::mt19937 rng(1);
  ForEachChunkAndThreads([&](Batches& batches, size_t chunk) {
    for (int rows = 1; rows <= kMaxRows; ++rows) {
      for (int sessions = 1; sessions <= std::min(rows, kMaxSessions);
           ++sessions) {
        if (static_cast<size_t>(rows + sessions) % kChunks.size() != chunk) {
          continue;
        }
        batches.Step(rows, sessions, kChunks[chunk], &rng);
        if (HasFatalFailure()) return;
      }
    }
  });
}

TEST_P(BatchCombinationsTest, EveryCombinationHasTheBitsOfRowsAlone) {
  std::mt19937 rng(2);
  int steps = 0;
  ForEachChunkAndThreads([&](Batches& batches, size_t chunk) {
    for (int rows = 1; rows <= kMaxRows; ++rows) {
      for (int sessions = 1; sessions <= std::min(rows, kMaxSessions);
           ++sessions, ++steps) {
        batches.Step(rows, sessions, kChunks[chunk], &rng);
        if (HasFatalFailure()) return;
      }
    }
  });
  EXPECT_EQ(steps, 261 * 4 * 2);
}

std::string CaseName(
    const ::testing::TestParamInfo<BatchCombinationsTest::ParamType>& info) {
  const Types& types = std::get<0>(info.param);
  return std::string(types.weights) + "_kv" + types.kv + "_" +
         kernels::SimdTargetName({std::get<1>(info.param), 0});
}

constexpr Types kTypes[] = {{"f32", "f32"},     {"bf16", "f32"},
                            {"bf16a16", "f32"}, {"int8", "f32"},
                            {"int4", "f32"},    {"bf16", "bf16"}};

// What the programs choose, and all that this machine can run.
INSTANTIATE_TEST_SUITE_P(
    BestTarget, BatchCombinationsTest,
    ::testing::Combine(::testing::ValuesIn(kTypes),
                       ::testing::Values(kernels::SupportedSimdTargets()[0])),
    CaseName);
INSTANTIATE_TEST_SUITE_P(
    EveryTarget, BatchCombinationsTest,
    ::testing::Combine(::testing::ValuesIn(kTypes),
                       ::testing::ValuesIn(kernels::SupportedSimdTargets())),
    CaseName);

}  // namespace
}  // namespace nacre::model
