// A model whose prompts are multiplied by cublasLt: which way a position is
// computed follows from the request, and its bits from nothing else. On the
// emulated device, with a cublasLt of the tests whose sums follow from the
// shape and from where a row stands.

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/prompt_products.h"
#include "model/load_model.h"
#include "tests/kernels/cuda/cublas_fixture.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using kernels::kCublasPrefill;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;
using Logits = std::vector<float>;

class CudaPromptsTest : public kernels::cuda::CublasTest {
 protected:
  // A model and its backend.
  struct Loaded {
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<LanguageModel> model;

    std::unique_ptr<Sequence> New(int prompt_positions, const Ids& known = {}) {
      auto sequence =
          model->NewPromptSequence(prompt_positions, kMostPositions, 0, known);
      EXPECT_TRUE(sequence.ok()) << sequence.status();
      return *std::move(sequence);
    }
    // The logits of the last `count` rows, as bits.
    Logits Feed(Sequence* sequence, const Ids& ids, int end, int count = 1) {
      const auto rows = absl::MakeConstSpan(ids).subspan(
          static_cast<size_t>(sequence->length()),
          static_cast<size_t>(end - sequence->length()));
      const auto logits = model->Forward({{{sequence, rows, count}}});
      EXPECT_TRUE(logits.ok()) << logits.status();
      return Logits(logits->begin(), logits->end());
    }
  };

  static constexpr int kMostPositions = 320;
  // More than a chunk.
  static constexpr int kPrompt = kernels::PromptProducts::kChunk + 9;

  CudaPromptsTest() {
    nacre::testing::WriteTinyCheckpoint(shape_, dir_);
    std::mt19937 random(5);
    for (int i = 0; i < kPrompt + 12; ++i) {
      ids_.push_back(static_cast<int32_t>(random() % 101));
    }
  }

  Loaded Load(const std::string& prefill = kCublasPrefill,
              bool prefix_cache = false) {
    Loaded loaded;
    loaded.backend = MakeBackend(prefill);
    auto model =
        LoadModel(dir_, loaded.backend.get(),
                  {.kv_cache_bytes = 4 << 20, .prefix_cache = prefix_cache});
    EXPECT_TRUE(model.ok()) << model.status();
    loaded.model = *std::move(model);
    return loaded;
  }

  // The logits after each of the tokens from `first` on, which are fed one by
  // one after all before them.
  static std::vector<Logits> OneByOne(Loaded& loaded, int prompt_positions,
                                      const Ids& ids, int first) {
    const auto sequence = loaded.New(prompt_positions);
    if (first > 0) loaded.Feed(sequence.get(), ids, first);
    std::vector<Logits> truth;
    for (int end = first + 1; end <= static_cast<int>(ids.size()); ++end) {
      truth.push_back(loaded.Feed(sequence.get(), ids, end));
    }
    return truth;
  }

  static bool SameBits(const Logits& a, const Logits& b) {
    return a.size() == b.size() &&
           std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  nacre::testing::TinyCheckpoint shape_ = {.hidden_size = 48,
                                           .intermediate_size = 72,
                                           .num_hidden_layers = 2,
                                           .num_attention_heads = 4,
                                           .num_key_value_heads = 2,
                                           .head_dim = 16,
                                           .vocab_size = 101,
                                           .max_position_embeddings = 512,
                                           .dtype = kernels::DType::kBF16};
  const std::string dir_ = nacre::testing::TestFolder("cuda_prompts");
  Ids ids_;
};

TEST_F(CudaPromptsTest, APromptMayBeCutAnywhere) {
  Loaded loaded = Load();
  const Logits whole = OneByOne(loaded, kPrompt, ids_, kPrompt).front();
  std::mt19937 random(7);
  for (const int piece : {13, 100, 255, 256, 257}) {
    const auto sequence = loaded.New(kPrompt);
    for (int end = piece; end < kPrompt; end += piece) {
      loaded.Feed(sequence.get(), ids_, end);
    }
    EXPECT_TRUE(SameBits(loaded.Feed(sequence.get(), ids_, kPrompt + 1), whole))
        << piece;
  }
  // The last pieces of it share a forward with what comes after it.
  const auto sequence = loaded.New(kPrompt);
  loaded.Feed(sequence.get(), ids_, kPrompt - 3);
  EXPECT_TRUE(SameBits(loaded.Feed(sequence.get(), ids_, kPrompt + 1), whole));
  EXPECT_THAT(state_->rows,
              ::testing::Each(size_t{kernels::PromptProducts::kChunk}));
}

// Else the tests here would see nothing.
TEST_F(CudaPromptsTest, WhichWayAPositionWentShows) {
  Loaded loaded = Load();
  const Ids ids(ids_.begin(), ids_.begin() + 40);
  const Logits truth = OneByOne(loaded, 30, ids, 39).back();
  for (const int prompt_positions : {0, 29, 31, 38}) {
    EXPECT_FALSE(
        SameBits(OneByOne(loaded, prompt_positions, ids, 39).back(), truth))
        << prompt_positions;
  }
  Loaded without = Load("");
  EXPECT_FALSE(SameBits(OneByOne(without, 30, ids, 39).back(), truth));
  // Decoding is the same, prompt or not.
  EXPECT_TRUE(SameBits(OneByOne(without, 30, ids, 39).back(),
                       OneByOne(loaded, 0, ids, 39).back()));
}

// Else all could agree on another model: with weights of another layer, say.
TEST_F(CudaPromptsTest, ItIsTheSameModel) {
  Loaded loaded = Load();
  Loaded without = Load("");
  const Logits prompt = OneByOne(loaded, kPrompt, ids_, kPrompt).front();
  const Logits own = OneByOne(without, 0, ids_, kPrompt).front();
  ASSERT_EQ(prompt.size(), own.size());
  const auto [least, most] = std::minmax_element(own.begin(), own.end());
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_NEAR(prompt[i], own[i], 0.03 * (*most - *least)) << i;
  }
}

TEST_F(CudaPromptsTest, OtherSessionsChangeNothing) {
  Loaded loaded = Load();
  const Ids first(ids_.begin(), ids_.begin() + 36);
  const Ids second(ids_.begin() + 50, ids_.begin() + 120);
  const std::vector<Logits> truth = {OneByOne(loaded, 30, first, 35).back(),
                                     OneByOne(loaded, 60, second, 69).back()};
  const auto a = loaded.New(30);
  const auto b = loaded.New(60);
  const auto c = loaded.New(0);
  loaded.Feed(b.get(), second, 7);
  // Prompts of both at the same places, a session that decodes between them.
  const auto rows_of = [](const Ids& ids, int begin, int end) {
    return absl::MakeConstSpan(ids).subspan(static_cast<size_t>(begin),
                                            static_cast<size_t>(end - begin));
  };
  for (const auto& [a_end, b_end] : {std::pair(25, 40), std::pair(36, 70)}) {
    const std::vector<SequenceRows> batch = {
        {a.get(), rows_of(first, a->length(), a_end), 1},
        {c.get(), rows_of(ids_, c->length(), c->length() + 2), 1},
        {b.get(), rows_of(second, b->length(), b_end), 1}};
    const auto logits = loaded.model->Forward(batch);
    ASSERT_TRUE(logits.ok()) << logits.status();
    if (a_end < 36) continue;
    const size_t vocab = logits->size() / 3;
    EXPECT_TRUE(
        SameBits(Logits(logits->begin(), logits->begin() + vocab), truth[0]));
    EXPECT_TRUE(
        SameBits(Logits(logits->begin() + 2 * vocab, logits->end()), truth[1]));
  }
}

// Prompt and tokens so far come as one text, and are computed as at first.
TEST_F(CudaPromptsTest, OpenedAgainAtEveryCut) {
  Loaded loaded = Load();
  for (const int prompt_positions : {20, kPrompt}) {
    const Ids ids(ids_.begin(), ids_.begin() + prompt_positions + 8);
    const std::vector<Logits> truth =
        OneByOne(loaded, prompt_positions, ids, prompt_positions);
    for (size_t cut = 0; cut < truth.size(); ++cut) {
      const auto again = loaded.New(prompt_positions);
      EXPECT_TRUE(
          SameBits(loaded.Feed(again.get(), ids,
                               prompt_positions + 1 + static_cast<int>(cut)),
                   truth[cut]))
          << prompt_positions << " and " << cut;
    }
  }
}

TEST_F(CudaPromptsTest, ElsewhereItIsTheSame) {
  Loaded here = Load();
  Loaded there = Load();
  EXPECT_EQ(here.model->info().numerics_id, there.model->info().numerics_id);
  EXPECT_THAT(here.model->info().numerics_id,
              HasSubstr("-prefillcublas130100-"));
  EXPECT_NE(here.model->info().numerics_id, Load("").model->info().numerics_id);
  const Ids ids(ids_.begin(), ids_.begin() + 40);
  EXPECT_TRUE(SameBits(OneByOne(here, 30, ids, 30).back(),
                       OneByOne(there, 30, ids, 36).back()));
}

TEST_F(CudaPromptsTest, PrefixesAreSharedOnlyAlike) {
  Loaded plain = Load();
  Loaded caching = Load(kCublasPrefill, /*prefix_cache=*/true);
  const Ids ids(ids_.begin(), ids_.begin() + 70);
  {
    const auto first = caching.New(40);
    caching.Feed(first.get(), ids, 69);
    first->Share(ids);
  }
  // Blocks of 16: the third one, from 32 on, has prompt and answer.
  for (const auto& [prompt_positions, shared] :
       {std::pair(40, 64), std::pair(41, 32), std::pair(69, 32),
        std::pair(39, 32), std::pair(20, 16), std::pair(0, 0)}) {
    const Logits truth = OneByOne(plain, prompt_positions, ids, 69).back();
    const auto later = caching.New(prompt_positions, ids);
    EXPECT_EQ(later->length(), shared) << prompt_positions;
    EXPECT_TRUE(SameBits(caching.Feed(later.get(), ids, 70), truth))
        << prompt_positions;
    // Of one that had begun.
    const auto begun = caching.New(prompt_positions);
    caching.Feed(begun.get(), ids, 5);
    begun->TakeOver(ids, 0);
    EXPECT_EQ(begun->length(), std::max(shared, 5)) << prompt_positions;
    EXPECT_TRUE(SameBits(caching.Feed(begun.get(), ids, 70), truth))
        << prompt_positions;
  }
}

// In the middle of a chunk, too.
TEST_F(CudaPromptsTest, AHitInALongPromptIsTheSame) {
  Loaded caching = Load(kCublasPrefill, /*prefix_cache=*/true);
  const Logits truth = OneByOne(caching, kPrompt, ids_, kPrompt).back();
  {
    const auto first = caching.New(kPrompt);
    caching.Feed(first.get(), ids_, 130);
    first->Share(Ids(ids_.begin(), ids_.begin() + 130));
  }
  const auto later = caching.New(kPrompt, ids_);
  EXPECT_EQ(later->length(), 128);
  EXPECT_TRUE(SameBits(
      caching.Feed(later.get(), ids_, static_cast<int>(ids_.size())), truth));
}

// Nodes are no prompt's rows, wherever they stand, and neither is what is kept
// of them. Beside them another session's prompt is fed.
TEST_F(CudaPromptsTest, TreesBehindAPromptAreItsChains) {
  constexpr int kShort = 30;
  Loaded loaded = Load(kCublasPrefill, /*prefix_cache=*/true);
  const Ids ids(ids_.begin(), ids_.begin() + kShort + 4);
  const std::vector<Logits> truth = OneByOne(loaded, kShort, ids, kShort);
  const Logits beside = OneByOne(loaded, 50, ids_, 50).front();
  const auto tree =
      *loaded.model->NewPromptSequence(kShort, kMostPositions, 4, {});
  const auto other = loaded.New(50);
  loaded.Feed(tree.get(), ids, kShort);
  // The last token of the prompt, then two nodes in a chain, one beside them.
  const Ids fed = {ids[kShort], ids[kShort + 1], 7, ids[kShort + 2]};
  const std::vector<TreeNode> nodes = {
      {2, kNoSlot, kShort + 1}, {0, kNoSlot, kShort + 1}, {3, 2, kShort + 2}};
  const auto logits = loaded.model->Forward(
      {{{other.get(), absl::MakeConstSpan(ids_).first(51), 1},
        {.sequence = tree.get(),
         .token_ids = fed,
         .num_logits = 4,
         .nodes = nodes}}});
  ASSERT_TRUE(logits.ok()) << logits.status();
  const size_t vocab = logits->size() / 5;
  const auto row = [&](size_t i) {
    const auto part = logits->subspan(i * vocab, vocab);
    return Logits(part.begin(), part.end());
  };
  EXPECT_TRUE(SameBits(row(0), beside));
  EXPECT_TRUE(SameBits(row(1), truth[0]));
  EXPECT_TRUE(SameBits(row(2), truth[1]));
  EXPECT_TRUE(SameBits(row(4), truth[2]));
  ASSERT_TRUE(tree->KeepPath(kShort + 1, {{2, 3}}).ok());
  tree->Share(Ids(ids.begin(), ids.begin() + kShort + 3));
  EXPECT_TRUE(SameBits(loaded.Feed(tree.get(), ids, kShort + 4), truth.back()));
  // What was shared has a prompt's positions and a path's.
  const auto again = loaded.New(kShort, ids);
  EXPECT_EQ(again->length(), 32);
  EXPECT_TRUE(
      SameBits(loaded.Feed(again.get(), ids, kShort + 4), truth.back()));
}

TEST_F(CudaPromptsTest, WithoutItAllRowsAreAlike) {
  Loaded loaded = Load("", /*prefix_cache=*/true);
  const Ids ids(ids_.begin(), ids_.begin() + 40);
  const Logits truth = OneByOne(loaded, 0, ids, 39).back();
  const auto first = loaded.New(30);
  EXPECT_TRUE(SameBits(loaded.Feed(first.get(), ids, 40), truth));
  first->Share(ids);
  EXPECT_EQ(loaded.New(10, ids)->length(), 32);
  EXPECT_TRUE(state_->rows.empty());
}

// Rows of prompts in a step of few rows are no part of its graph.
TEST_F(CudaPromptsTest, StepsThatComeAgainAreTheSame) {
  Loaded loaded = Load();
  const Ids ids(ids_.begin(), ids_.begin() + 40);
  const std::vector<Logits> truth = OneByOne(loaded, 20, ids, 20);
  for (int i = 0; i < 3; ++i) {
    const auto sequence = loaded.New(20);
    for (int end = 1; end <= 20; ++end) {
      loaded.Feed(sequence.get(), ids, end);
    }
    for (size_t k = 0; k < truth.size(); ++k) {
      EXPECT_TRUE(SameBits(
          loaded.Feed(sequence.get(), ids, 21 + static_cast<int>(k)), truth[k]))
          << k;
    }
  }
  EXPECT_GT(kernels::cuda::emulation::counts.graph_launches, 0);
}

TEST_F(CudaPromptsTest, OtherWeightsAreRefused) {
  shape_.dtype = kernels::DType::kF32;
  nacre::testing::WriteTinyCheckpoint(shape_, dir_);
  const auto backend = MakeBackend();
  const absl::Status status = LoadModel(dir_, backend.get(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("--prefill cublas multiplies bf16 weights"));
}

// Weights are kept twice, which is known before they are read.
TEST_F(CudaPromptsTest, TheCopyOfTheWeightsCounts) {
  const auto needed = [this](const std::string& prefill) {
    kernels::BackendOptions options = OptionsOf(prefill);
    options.max_memory_bytes = 4096;
    const auto backend = *kernels::CreateBackend(options);
    const absl::Status status = LoadModel(dir_, backend.get(), {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    long long bytes = 0;
    EXPECT_EQ(std::sscanf(std::string(status.message()).c_str(),
                          "the weights need %lld", &bytes),
              1)
        << status;
    return bytes;
  };
  const long long inputs = 48 * (64 + 2 * 32) + 64 * 48 + 48 * 144 + 72 * 48;
  EXPECT_EQ(needed(kCublasPrefill) - needed(""), 2 * 2 * inputs);
}

}  // namespace
}  // namespace nacre::model
