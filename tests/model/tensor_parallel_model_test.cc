// A model on several ranks: the same bits for any number of them, in any batch,
// close to the model on one backend, and the end of all when one fails.

#include "model/tensor_parallel_model.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/load_model.h"
#include "tests/model/rank_sessions.h"
#include "tests/testing/gguf_checkpoint.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<TensorParallelModel> OnRanks(
    const std::string& dir, const kernels::BackendOptions& backend, int ranks) {
  auto model = TensorParallelModel::Load(dir, backend, ranks, Options());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

// One that begins with what the KV cache has lost and the store keeps.
Values RunAfterLoss(LanguageModel* model) {
  Values all;
  const std::vector<int32_t> tokens = Tokens(60, 3);
  const auto span = absl::MakeConstSpan(tokens);
  auto a = *model->NewSequence(60);
  Append(model->Forward({{a.get(), span.subspan(0, 50), 1}}), &all);
  a->Share(span.subspan(0, 50));
  a.reset();
  EXPECT_TRUE(
      model->NewSequence(static_cast<int>(model->kv_free_tokens())).ok());
  const auto b = *model->NewSequenceWithPrefix(60, span);
  const TakenOver taken = b->TakeOver(span, model->blocks_brought_at_once());
  EXPECT_EQ(b->length(), 48);
  EXPECT_EQ(taken.positions, taken.brought);
  EXPECT_GT(taken.brought, 0);
  Append(model->Forward({{b.get(), span.subspan(48, 4), 4}}), &all);
  return all;
}

// A checkpoint and a backend.
struct Case {
  std::string name;
  std::string architecture = "LlamaForCausalLM";
  std::string weights = "auto";
  std::string more = "";  // of the config
  std::string kind = "cpu";
  std::string kv_type = "f32";
  double tolerance = 1e-5;  // of the largest logit, against the plain mode
};

std::vector<Case> Cases() {
  return {{.name = "f32"},
          {.name = "reference", .kind = "reference"},
          {.name = "tied", .more = R"(, "tie_word_embeddings": true)"},
          {.name = "biases",
           .more = R"(, "attention_bias": true, "mlp_bias": true)"},
          {.name = "mistral",
           .architecture = "MistralForCausalLM",
           .more = R"(, "sliding_window": 20)"},
          {.name = "qwen2", .architecture = "Qwen2ForCausalLM"},
          {.name = "qwen3", .architecture = "Qwen3ForCausalLM"},
          {.name = "bf16", .weights = "bf16"},
          {.name = "kvbf16", .kv_type = "bf16", .tolerance = 0.05},
          // Inputs are rounded: one that is a bit larger may be rounded up.
          {.name = "bf16a16", .weights = "bf16a16", .tolerance = 0.05},
          {.name = "int8", .weights = "int8", .tolerance = 0.1},
          {.name = "int4", .weights = "int4", .tolerance = 0.1}};
}

class TensorParallelTest : public ::testing::TestWithParam<Case> {};

TEST_P(TensorParallelTest, EveryNumberOfRanksHasTheSameBits) {
  const Case& param = GetParam();
  const std::string dir = nacre::testing::TestFolder("ranks");
  nacre::testing::WriteRandomCheckpoint(
      ConfigJson(param.architecture, param.weights, param.more), dir);
  const auto options = Backend(param.kind, param.weights, param.kv_type);
  const auto backend = *kernels::CreateBackend(options);
  const auto plain = *LoadModel(dir, backend.get(), Options());
  const Values near = RunSessions(plain.get());
  Values expected;
  for (const int ranks : {1, 2, 4, 8}) {
    const auto model = OnRanks(dir, options, ranks);
    ASSERT_NE(model, nullptr);
    const Values logits = RunSessions(model.get());
    if (expected.empty()) expected = logits;
    EXPECT_EQ(logits, expected) << ranks << " ranks";
    EXPECT_EQ(model->info().fingerprint, plain->info().fingerprint);
    EXPECT_EQ(model->info().kv_capacity_tokens,
              plain->info().kv_capacity_tokens);
    EXPECT_EQ(model->kv_free_tokens(), plain->kv_free_tokens());
    EXPECT_EQ(model->info().numerics_id,
              absl::StrCat(backend->numerics_id(), "-shards8-llama-v1"));
  }
  EXPECT_LE(LargestDifference(expected, near), param.tolerance * Largest(near));
}

INSTANTIATE_TEST_SUITE_P(Models, TensorParallelTest,
                         ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.name; });

TEST(TensorParallelModelTest, RanksBringBackTheSame) {
  const std::string dir = nacre::testing::TestFolder("kept");
  nacre::testing::WriteRandomCheckpoint(ConfigJson("LlamaForCausalLM", "f32"),
                                        dir);
  ModelOptions options = Options();
  options.kv_cache_bytes = 2 * 2 * 8 * 10 * 4 * 96;  // of 96 positions
  options.prefix_store.bytes = options.kv_cache_bytes;
  int most_at_once = 0;
  Values expected;
  for (const int ranks : {1, 2, 4, 8}) {
    const auto model =
        TensorParallelModel::Load(dir, Backend("cpu", "f32"), ranks, options);
    ASSERT_TRUE(model.ok()) << model.status();
    // As many bytes as one rank would: each has a part of a block.
    const int at_once = (*model)->blocks_brought_at_once();
    if (ranks == 1) most_at_once = at_once;
    EXPECT_EQ(at_once, most_at_once);
    const Values logits = RunAfterLoss(model->get());
    if (expected.empty()) expected = logits;
    EXPECT_EQ(logits, expected) << ranks << " ranks";
  }
}

// The bundled kind of checkpoint: bf16, a head of its own.
TEST(TensorParallelModelTest, ReadsBf16CheckpointsAsTheyAre) {
  const std::string dir = nacre::testing::TestFolder("bf16");
  nacre::testing::WriteTinyCheckpoint({.intermediate_size = 104,
                                       .num_attention_heads = 8,
                                       .num_key_value_heads = 8,
                                       .vocab_size = kVocab,
                                       .dtype = kernels::DType::kBF16},
                                      dir);
  const auto one = OnRanks(dir, Backend("cpu", "auto"), 1);
  const auto four = OnRanks(dir, Backend("cpu", "auto"), 4);
  EXPECT_EQ(RunSessions(one.get()), RunSessions(four.get()));
}

// Its rows are computed as they are read.
TEST(TensorParallelModelTest, ReadsAGgufFileAsItsFolder) {
  const std::string dir = nacre::testing::TestFolder("folder");
  nacre::testing::WriteRandomCheckpoint(ConfigJson("LlamaForCausalLM", "f32"),
                                        dir);
  const std::string file = nacre::testing::TestFolder("gguf") + "/m.gguf";
  nacre::testing::WriteFile(file,
                            nacre::testing::GgufOfCheckpoint(dir).Bytes());
  const auto folder = OnRanks(dir, Backend("cpu", "auto"), 2);
  const auto gguf = OnRanks(file, Backend("cpu", "auto"), 4);
  ASSERT_NE(gguf, nullptr);
  EXPECT_EQ(RunSessions(folder.get()), RunSessions(gguf.get()));
}

// Shards of what is down are whole blocks of Q6_K, those of attention's output
// are parts of blocks of Q4_K and become floats.
TEST(TensorParallelModelTest, IntegersOfAGgufFileGiveTheBitsOfFloats) {
  const std::string dir = nacre::testing::TestFolder("folder");
  nacre::testing::WriteRandomCheckpoint(
      R"({"architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
          "hidden_size": 256, "num_hidden_layers": 2, "head_dim": 32,
          "num_attention_heads": 16, "num_key_value_heads": 8,
          "intermediate_size": 2048, "vocab_size": 104, "eos_token_id": 2,
          "max_position_embeddings": 200, "rms_norm_eps": 1e-5})",
      dir);
  const std::string file = nacre::testing::TestFolder("gguf") + "/m.gguf";
  nacre::testing::WriteFile(
      file, nacre::testing::QuantizedGgufOfCheckpoint(dir).Bytes());
  const auto floats = OnRanks(file, Backend("cpu", "f32"), 1);
  ASSERT_NE(floats, nullptr);
  const Values expected = RunSessions(floats.get());
  for (const int ranks : {1, 2, 4, 8}) {
    const auto model = OnRanks(file, Backend("cpu", "auto"), ranks);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(RunSessions(model.get()), expected) << ranks << " ranks";
  }
  ModelOptions options = Options();
  MemoryNeeds needs;
  options.admit = [&needs](const MemoryNeeds& told) {
    needs = told;
    return absl::OkStatus();
  };
  const auto loaded =
      TensorParallelModel::Load(file, Backend("cpu", "auto"), 2, options);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(needs.has_widened);
  EXPECT_GT(needs.num_factors, 0);
}

TEST(TensorParallelModelTest, ARowHasTheSameBitsInEveryBatch) {
  const std::string dir = nacre::testing::TestFolder("batch");
  nacre::testing::WriteRandomCheckpoint(ConfigJson("LlamaForCausalLM", "int8"),
                                        dir);
  const auto model = OnRanks(dir, Backend("cpu", "int8"), 2);
  constexpr int kSessions = 5;
  std::vector<Values> alone;
  for (int i = 0; i < kSessions; ++i) {
    const auto sequence = *model->NewSequence(60);
    Values& logits = alone.emplace_back();
    for (const int32_t token : Tokens(3 + 7 * i, i)) {
      logits.clear();
      Append(model->Forward({{sequence.get(), {&token, 1}, 1}}), &logits);
    }
  }
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<SequenceRows> batch;
  for (int i = 0; i < kSessions; ++i) {
    sequences.push_back(*model->NewSequence(60));
    tokens.push_back(Tokens(3 + 7 * i, i));
  }
  for (size_t i = 0; i < kSessions; ++i) {
    batch.push_back({sequences[i].get(), tokens[i], 1});
  }
  Values together;
  Append(model->Forward(batch), &together);
  for (size_t i = 0; i < kSessions; ++i) {
    const auto begin =
        together.begin() + static_cast<std::ptrdiff_t>(i * kVocab);
    EXPECT_EQ(Values(begin, begin + kVocab), alone[i]) << "session " << i;
  }
}

TEST(TensorParallelModelTest, ShowsHiddenStatesButNoHeadAndNoKeys) {
  const std::string dir = nacre::testing::TestFolder("features");
  nacre::testing::WriteRandomCheckpoint(ConfigJson("LlamaForCausalLM", "f32"),
                                        dir);
  const auto two = OnRanks(dir, Backend("cpu", "auto"), 2);
  const auto one = OnRanks(dir, Backend("cpu", "auto"), 1);
  std::vector<Values> seen;
  for (TensorParallelModel* model : {one.get(), two.get()}) {
    ASSERT_TRUE(
        model->SetTaps({{FeatureTap::Kind::kIn, 1}, {FeatureTap::Kind::kFinal}})
            .ok());
    const auto sequence = *model->NewSequence(20);
    const std::vector<int32_t> tokens = Tokens(6, 3);
    Values& values = seen.emplace_back();
    Append(model->Forward({{sequence.get(), tokens, 6}}), &values);
    for (const int tap : {0, 1}) {
      EXPECT_EQ(model->features(tap).size(), 6u * 52);
      values.insert(values.end(), model->features(tap).begin(),
                    model->features(tap).end());
    }
    EXPECT_EQ(model->final_hidden().size(), 6u * 52);
    EXPECT_FALSE(model->vocabulary_head().has_value());
    EXPECT_FALSE(model->kept_kv().has_value());
    EXPECT_FALSE(model->draws_tokens());
    EXPECT_EQ(model->forward_progress(), 2u);
  }
  EXPECT_EQ(seen[0], seen[1]);
}

TEST(TensorParallelModelTest, WhatIsRefusedChangesNothing) {
  const std::string dir = nacre::testing::TestFolder("refused");
  nacre::testing::WriteRandomCheckpoint(ConfigJson("LlamaForCausalLM", "f32"),
                                        dir);
  const auto model = OnRanks(dir, Backend("cpu", "auto"), 2);
  const auto sequence = *model->NewSequence(20);
  const std::vector<int32_t> bad = {1, kVocab}, good = {1, 2};
  const auto refused = model->Forward({{sequence.get(), bad, 1}});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(sequence->length(), 0);
  EXPECT_TRUE(model->Forward({{sequence.get(), good, 1}}).ok());
  EXPECT_EQ(sequence->length(), 2);
  EXPECT_EQ(model->NewSequence(kContext + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(model->NewTreeSequence(kContext, 1024, {}).ok(), true);
}

TEST(TensorParallelModelTest, AFailedRankEndsTheModelForGood) {
  const std::string dir = nacre::testing::TestFolder("failed");
  nacre::testing::WriteRandomCheckpoint(ConfigJson("LlamaForCausalLM", "f32"),
                                        dir);
  const auto model = OnRanks(dir, Backend("cpu", "auto"), 4);
  const auto sequence = *model->NewSequence(20);
  const std::vector<int32_t> tokens = {1};
  EXPECT_TRUE(model->Forward({{sequence.get(), tokens, 1}}).ok());
  const absl::Status reason = absl::InternalError("rank 2 is lost");
  model->Abort(reason);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(model->Forward({{sequence.get(), tokens, 1}}).status(), reason);
    EXPECT_EQ(sequence->length(), 1);
  }
}

// However late a rank fails, the others return from the step.
TEST(TensorParallelModelTest, AFailureEndsTheStepThatIsUnderWay) {
  const std::string dir = nacre::testing::TestFolder("under_way");
  nacre::testing::WriteRandomCheckpoint(ConfigJson("LlamaForCausalLM", "f32"),
                                        dir);
  const auto model = OnRanks(dir, Backend("cpu", "auto"), 4);
  const auto sequence = *model->NewSequence(kContext);
  const std::vector<int32_t> tokens = Tokens(20, 4);
  const absl::Status reason = absl::InternalError("rank 3 is lost");
  std::atomic<int> steps{0};
  std::thread fails([&] {
    steps.wait(0);
    model->Abort(reason);
  });
  absl::Status status;
  while (status.ok()) {
    sequence->Truncate(0);
    status = model->Forward({{sequence.get(), tokens, 1}}).status();
    ++steps;
    steps.notify_one();
  }
  fails.join();
  EXPECT_EQ(status, reason);
  EXPECT_EQ(sequence->length(), 0);
}

absl::Status Refused(const std::string& dir,
                     const kernels::BackendOptions& backend, int ranks,
                     const ModelOptions& options = Options()) {
  return TensorParallelModel::Load(dir, backend, ranks, options).status();
}

TEST(TensorParallelModelTest, RefusesWhatRanksCannotShare) {
  const std::string dir = nacre::testing::TestFolder("sizes");
  nacre::testing::WriteTinyCheckpoint({}, dir);
  kernels::BackendOptions backend = Backend("cpu", "auto");
  EXPECT_THAT(Refused(dir, backend, 3).ToString(),
              HasSubstr("--tensor-parallel is 3, expected 1, 2, 4 or 8"));
  EXPECT_THAT(Refused(dir, backend, 4).ToString(),
              HasSubstr("num_attention_heads is 6, which 4 ranks"));

  const std::string fits = nacre::testing::TestFolder("fits");
  nacre::testing::WriteRandomCheckpoint(ConfigJson("LlamaForCausalLM", "f32"),
                                        fits);
  backend.cpus = {0, 1, 2};
  EXPECT_THAT(Refused(fits, backend, 2).ToString(),
              HasSubstr("--tensor-parallel 2: --cpus has 3 cores, which 2 "
                        "ranks do not share evenly"));
  backend.cpus = {0};
  EXPECT_THAT(Refused(fits, backend, 2).ToString(),
              HasSubstr("--cpus has 1 core, which 2 ranks"));
  backend.cpus = {0, 0};
  EXPECT_THAT(Refused(fits, backend, 2).ToString(),
              HasSubstr("core 0 is listed twice"));
  backend.cpus = {};
  backend.weights = "int7";
  EXPECT_EQ(Refused(fits, backend, 2).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TensorParallelModelTest, RefusesQuantizedCheckpoints) {
  const std::string dir = nacre::testing::TestFolder("quantized");
  const std::string awq =
      R"(, "quantization_config": {"quant_method": "awq", "bits": 4})";
  nacre::testing::WriteRandomCheckpoint(
      ConfigJson("LlamaForCausalLM", "f32", awq), dir);
  const absl::Status status = Refused(dir, Backend("cpu", "auto"), 2);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_THAT(status.ToString(),
              HasSubstr("--tensor-parallel 2: this checkpoint's weights are "
                        "quantized, and are not split; those of floats are"));
}

TEST(TensorParallelModelTest, AsksForTheMemoryOfAllRanksOnce) {
  const std::string dir = nacre::testing::TestFolder("memory");
  nacre::testing::WriteRandomCheckpoint(ConfigJson("LlamaForCausalLM", "f32"),
                                        dir);
  ModelOptions options = Options();
  int asked = 0;
  options.admit = [&](const MemoryNeeds& needs) {
    ++asked;
    EXPECT_EQ(needs.kv_cache, options.kv_cache_bytes);
    EXPECT_GT(needs.weights, 0);
    return absl::ResourceExhaustedError("too little");
  };
  EXPECT_EQ(Refused(dir, Backend("cpu", "auto"), 4, options),
            absl::ResourceExhaustedError("too little"));
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace nacre::model
