// Logits against Hugging Face, and the contract that makes speculation exact: a
// row's logits are the same bits in every batch.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/load_model.h"
#include "tests/model/named_backend.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nacre::testing::TestFolder;
using nacre::testing::TinyCheckpoint;
using nacre::testing::WriteTinyCheckpoint;
using ::testing::HasSubstr;
using Logits = std::vector<std::vector<float>>;  // [rows][vocab_size]

class TransformerTest : public ::testing::TestWithParam<const char*> {
 protected:
  TransformerTest() : backend_(NamedBackend(GetParam())) {}

  void SetUp() override {
    if (backend_ == nullptr) GTEST_SKIP() << "no CUDA device";
  }

  std::unique_ptr<LanguageModel> LoadFrom(const std::string& dir) {
    auto model = LoadModel(dir, backend_.get(), {1 << 22, {}});
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  std::unique_ptr<LanguageModel> LoadTiny(const TinyCheckpoint& shape = {}) {
    const std::string dir = TestFolder("tiny");
    WriteTinyCheckpoint(shape, dir);
    return LoadFrom(dir);
  }

  float tolerance() const { return LogitTolerance(GetParam()); }

  std::string LoadError(const std::string& dir) {
    return LoadModel(dir, backend_.get(), {}).status().ToString();
  }

  std::unique_ptr<kernels::Backend> backend_;
};

std::vector<int32_t> RandomTokens(int count, int vocab_size, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(rng() % static_cast<uint32_t>(vocab_size));
  }
  return tokens;
}

std::unique_ptr<Sequence> NewSequence(LanguageModel* model, int max_length) {
  auto sequence = model->NewSequence(max_length);
  EXPECT_TRUE(sequence.ok()) << sequence.status();
  return *std::move(sequence);
}

// Runs a batch; returns its logits row by row.
Logits ForwardRows(LanguageModel* model, absl::Span<const SequenceRows> batch) {
  const auto logits = model->Forward(batch);
  EXPECT_TRUE(logits.ok()) << logits.status();
  const size_t vocab = static_cast<size_t>(model->info().vocab_size);
  Logits rows;
  for (size_t i = 0; i + vocab <= logits->size(); i += vocab) {
    rows.emplace_back(logits->begin() + i, logits->begin() + i + vocab);
  }
  return rows;
}

Logits ForwardRows(LanguageModel* model, Sequence* sequence,
                   absl::Span<const int32_t> tokens) {
  return ForwardRows(model,
                     {{sequence, tokens, static_cast<int>(tokens.size())}});
}

// The logits of all rows when tokens are fed one at a time, alone.
Logits RunOneByOne(LanguageModel* model, absl::Span<const int32_t> tokens) {
  const auto sequence = NewSequence(model, static_cast<int>(tokens.size()));
  Logits result;
  for (size_t i = 0; i < tokens.size(); ++i) {
    result.push_back(
        ForwardRows(model, sequence.get(), tokens.subspan(i, 1))[0]);
  }
  return result;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectSameBits(const Logits& actual, const Logits& expected,
                    size_t first_row, const std::string& what) {
  ASSERT_LE(first_row + actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(SameBits(actual[i], expected[first_row + i]))
        << what << ", row " << first_row + i;
  }
}

// The largest difference of the logits at `positions` of `tokens` from
// `expected`, [positions, vocab_size], relative to the largest of these.
float DifferenceFrom(LanguageModel* model, const std::vector<int32_t>& tokens,
                     const std::vector<size_t>& positions,
                     const std::vector<float>& expected) {
  const auto sequence = NewSequence(model, static_cast<int>(tokens.size()));
  const Logits logits = ForwardRows(model, sequence.get(), tokens);
  const size_t vocab = static_cast<size_t>(model->info().vocab_size);
  EXPECT_EQ(expected.size(), positions.size() * vocab);
  float largest = 0;
  for (const float value : expected) {
    largest = std::max(largest, std::abs(value));
  }
  float difference = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    for (size_t id = 0; id < vocab; ++id) {
      difference = std::max(difference, std::abs(logits[positions[i]][id] -
                                                 expected[i * vocab + id]));
    }
  }
  return difference / largest;
}

TEST_P(TransformerTest, MatchesHuggingFace) {
  const std::string data = std::string(NACRE_TEST_DATA) + "/model/";
  const auto goldens = nlohmann::json::parse(
      nacre::testing::ReadFile(data + "goldens.json"))["logits"];
  ASSERT_EQ(goldens.size(), 3u);
  for (const auto& golden : goldens) {
    const std::string name = golden["name"];
    const auto model = LoadFrom(
        name == "tiny" ? data + "tiny" : std::string(NACRE_MODELS) + "/target");
    EXPECT_EQ(golden["vocab_size"], model->info().vocab_size);
    const std::string bytes =
        nacre::testing::ReadFile(data + name + ".logits.f32");
    std::vector<float> expected(bytes.size() / sizeof(float));
    std::memcpy(expected.data(), bytes.data(), bytes.size());
    const float difference = DifferenceFrom(model.get(), golden["token_ids"],
                                            golden["positions"], expected);
    EXPECT_LE(difference, tolerance()) << name;
    RecordProperty(name, std::to_string(difference));
  }
}

// Checkpoints as transformers saves them.
TEST_P(TransformerTest, EveryFamilyMatchesHuggingFace) {
  for (const std::string name : {"mistral", "qwen2"}) {
    const std::string dir =
        std::string(NACRE_TEST_DATA) + "/model/families/" + name;
    const auto model = LoadFrom(dir);
    const auto golden =
        nlohmann::json::parse(nacre::testing::ReadFile(dir + "/golden.json"));
    std::vector<float> expected;
    for (const auto& row : golden["logits"]) {
      for (const float value : row) expected.push_back(value);
    }
    ASSERT_FALSE(expected.empty());
    const float difference = DifferenceFrom(model.get(), golden["token_ids"],
                                            golden["positions"], expected);
    EXPECT_LE(difference, tolerance()) << name;
    RecordProperty(name, std::to_string(difference));
  }
}

TEST_P(TransformerTest, RowsOfOneSequenceAreInvariantToTheirNumber) {
  const auto model = LoadTiny();
  const std::vector<int32_t> tokens = RandomTokens(40, 101, 1);
  const Logits expected = RunOneByOne(model.get(), tokens);
  for (int num_rows = 1; num_rows <= 17; ++num_rows) {
    const auto sequence = NewSequence(model.get(), 40);
    for (size_t begin = 0; begin < tokens.size();) {
      const size_t count =
          std::min(tokens.size() - begin, static_cast<size_t>(num_rows));
      const auto rows = absl::MakeConstSpan(tokens).subspan(begin, count);
      ExpectSameBits(ForwardRows(model.get(), sequence.get(), rows), expected,
                     begin, std::to_string(num_rows) + " rows");
      begin += count;
    }
  }
}

// One by one, in runs of every length, and beside another sequence.
TEST_P(TransformerTest, BiasesKeepTheBitsInEveryBatch) {
  TinyCheckpoint shape;
  shape.architecture = "Qwen2ForCausalLM";
  const auto model = LoadTiny(shape);
  const std::vector<int32_t> tokens = RandomTokens(14, 101, 6);
  const std::vector<int32_t> others = RandomTokens(5, 101, 7);
  const Logits expected = RunOneByOne(model.get(), tokens);
  const absl::Span<const int32_t> span = tokens;
  for (const size_t first : {size_t{1}, size_t{2}, size_t{8}, size_t{13}}) {
    const auto sequence = NewSequence(model.get(), 14);
    const auto other = NewSequence(model.get(), 5);
    ExpectSameBits(
        ForwardRows(model.get(), sequence.get(), span.subspan(0, first)),
        expected, 0, std::to_string(first) + " rows");
    const auto rest = span.subspan(first);
    const Logits logits = ForwardRows(
        model.get(), {{other.get(), others, 0},
                      {sequence.get(), rest, static_cast<int>(rest.size())}});
    ExpectSameBits(logits, expected, first, "beside another sequence");
  }
}

TEST_P(TransformerTest, PrefillMayBeSplitAnywhere) {
  const auto model = LoadTiny();
  const std::vector<int32_t> tokens = RandomTokens(150, 101, 2);
  const Logits expected = RunOneByOne(model.get(), tokens);
  for (const size_t split : {size_t{7}, size_t{64}, size_t{149}}) {
    const auto sequence = NewSequence(model.get(), 150);
    for (size_t begin = 0; begin < 149; begin += split) {
      // Prefill rows ask for no logits.
      const size_t count = std::min(split, 149 - begin);
      const auto rows = absl::MakeConstSpan(tokens).subspan(begin, count);
      EXPECT_TRUE(
          ForwardRows(model.get(), {{sequence.get(), rows, 0}}).empty());
    }
    const auto last = absl::MakeConstSpan(tokens).last(1);
    ExpectSameBits(ForwardRows(model.get(), sequence.get(), last), expected,
                   149, "split at " + std::to_string(split));
  }
}

// Random batches of up to five sessions at different positions, each with its
// own number of rows and of logits, some truncated back now and then.
TEST_P(TransformerTest, RowsAreInvariantToOtherSessionsAndRollBacks) {
  for (const kernels::DType dtype :
       {kernels::DType::kF32, kernels::DType::kBF16, kernels::DType::kF16}) {
    TinyCheckpoint shape;
    shape.dtype = dtype;
    shape.tie_word_embeddings = dtype == kernels::DType::kBF16;
    const auto model = LoadTiny(shape);
    constexpr int kLength = 70;
    std::vector<std::vector<int32_t>> tokens;
    std::vector<Logits> expected;
    std::vector<std::unique_ptr<Sequence>> sequences;
    for (uint32_t s = 0; s < 5; ++s) {
      tokens.push_back(RandomTokens(kLength, 101, 10 + s));
      expected.push_back(RunOneByOne(model.get(), tokens.back()));
      sequences.push_back(NewSequence(model.get(), kLength));
    }
    std::mt19937 rng(3);
    for (int round = 0; round < 60; ++round) {
      std::vector<SequenceRows> batch;
      std::vector<std::pair<size_t, size_t>> wanted;  // session, row
      for (size_t s = 0; s < sequences.size(); ++s) {
        if (rng() % 3 == 0) continue;
        if (rng() % 4 == 0) {
          sequences[s]->Truncate(static_cast<int>(rng() % kLength));
        }
        const size_t begin = static_cast<size_t>(sequences[s]->length());
        const size_t count = std::min<size_t>(1 + rng() % 17, kLength - begin);
        if (count == 0) continue;
        const size_t num_logits = rng() % (count + 1);
        batch.push_back({sequences[s].get(),
                         absl::MakeConstSpan(tokens[s]).subspan(begin, count),
                         static_cast<int>(num_logits)});
        for (size_t i = count - num_logits; i < count; ++i) {
          wanted.emplace_back(s, begin + i);
        }
      }
      const Logits logits = ForwardRows(model.get(), batch);
      ASSERT_EQ(logits.size(), wanted.size());
      for (size_t i = 0; i < logits.size(); ++i) {
        const auto [s, row] = wanted[i];
        ASSERT_TRUE(SameBits(logits[i], expected[s][row]))
            << "round " << round << ", session " << s << ", row " << row;
      }
    }
  }
}

TEST_P(TransformerTest, AppendingOtherTokensAfterTruncationForgetsTheOldOnes) {
  const auto model = LoadTiny();
  const std::vector<int32_t> tokens = RandomTokens(40, 101, 5);
  std::vector<int32_t> other = tokens;
  for (size_t i = 20; i < 30; ++i) other[i] = (other[i] + 1) % 101;
  const auto sequence = NewSequence(model.get(), 40);
  ForwardRows(model.get(), sequence.get(),
              absl::MakeConstSpan(other).first(30));
  sequence->Truncate(20);
  EXPECT_EQ(sequence->length(), 20);
  const Logits logits = ForwardRows(model.get(), sequence.get(),
                                    absl::MakeConstSpan(tokens).last(20));
  ExpectSameBits(logits, RunOneByOne(model.get(), tokens), 20, "re-appended");
}

TEST_P(TransformerTest, AnInterruptedForwardLeavesNoTrace) {
  const auto model = LoadTiny();
  const std::vector<int32_t> tokens =
      RandomTokens(12, model->info().vocab_size, 8);
  const Logits expected = RunOneByOne(model.get(), tokens);
  const auto sequence = NewSequence(model.get(), 12);
  const absl::Span<const int32_t> span = tokens;
  ForwardRows(model.get(), sequence.get(), span.subspan(0, 5));

  int asked = 0;
  model->SetInterrupt([&asked] { return ++asked > 0; });
  // Other tokens, more of them.
  const std::vector<int32_t> others =
      RandomTokens(7, model->info().vocab_size, 9);
  EXPECT_EQ(model->Forward({{sequence.get(), others, 1}}).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(sequence->length(), 5);

  model->SetInterrupt([] { return false; });
  ExpectSameBits(ForwardRows(model.get(), sequence.get(), span.subspan(5, 3)),
                 expected, 5, "asked, and not interrupted");
  model->SetInterrupt(nullptr);
  ExpectSameBits(ForwardRows(model.get(), sequence.get(), span.subspan(8)),
                 expected, 8, "not asked");
}

TEST_P(TransformerTest, ReservesAndFreesItsKvCache) {
  const auto model = LoadTiny();
  const int64_t all = model->kv_free_tokens();
  EXPECT_EQ(model->info().kv_capacity_tokens, all);
  {
    const auto sequence = NewSequence(model.get(), 33);
    EXPECT_EQ(model->kv_free_tokens(), all - 48);
  }
  EXPECT_EQ(model->kv_free_tokens(), all);
  for (const int length : {513, 0, -1}) {
    const auto refused = model->NewSequence(length);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.status().ToString(), HasSubstr("1 to 512"));
  }
}

TEST_P(TransformerTest, RefusesTokenIdsOutsideTheVocabulary) {
  const auto model = LoadTiny();
  const auto sequence = NewSequence(model.get(), 10);
  for (const int32_t id : {-1, 101, 1 << 30}) {
    const std::vector<int32_t> tokens = {3, id};
    const auto logits = model->Forward({{sequence.get(), tokens, 1}});
    EXPECT_EQ(logits.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(logits.status().ToString(),
                HasSubstr("token id " + std::to_string(id)));
  }
  EXPECT_EQ(sequence->length(), 0);
  EXPECT_TRUE(model->Forward({}).ok());
}

TEST_P(TransformerTest, OurOwnBugsAreFatal) {
  const auto model = LoadTiny();
  const auto sequence = NewSequence(model.get(), 3);
  const std::vector<int32_t> tokens = {1, 2, 3, 4};
  const auto two = absl::MakeConstSpan(tokens).first(2);
  EXPECT_DEATH((void)model->Forward({{sequence.get(), tokens, 1}}).status(),
               "passes its reserved length");
  EXPECT_DEATH(
      (void)model->Forward({{sequence.get(), two, 1}, {sequence.get(), two, 1}})
          .status(),
      "twice in a batch");
}

TEST_P(TransformerTest, DescribesItself) {
  const auto model = LoadTiny();
  const ModelInfo& info = model->info();
  EXPECT_EQ(info.vocab_size, 101);
  EXPECT_EQ(info.context_length, 512);
  EXPECT_EQ(info.eos_token_ids, std::vector<int32_t>{2});
  EXPECT_EQ(info.fingerprint.size(), 64u);
  EXPECT_THAT(info.numerics_id, HasSubstr(backend_->numerics_id()));
  EXPECT_THAT(info.description, HasSubstr("LlamaForCausalLM"));
}

TEST_P(TransformerTest, LoadingReportsItsProgress) {
  const std::string dir = TestFolder("tiny");
  WriteTinyCheckpoint({}, dir);
  std::vector<double> fractions;
  ModelOptions options;
  options.kv_cache_bytes = 1 << 20;
  options.progress = [&](absl::string_view stage, double fraction) {
    if (stage == "fingerprint") return;  // as much as is left of it then
    EXPECT_EQ(stage, "weights");
    fractions.push_back(fraction);
  };
  ASSERT_TRUE(LoadModel(dir, backend_.get(), options).ok());
  EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
  EXPECT_EQ(fractions.front(), 0.0);
  EXPECT_EQ(fractions.back(), 1.0);
}

TEST_P(TransformerTest, NamesTheTensorThatDoesNotFitTheConfig) {
  const std::string dir = TestFolder("tiny");
  EXPECT_THAT(LoadError(dir + "/no"), HasSubstr("does not exist"));
  EXPECT_THAT(LoadError(dir), HasSubstr("config.json"));
  WriteTinyCheckpoint({}, dir);
  const std::string config_path = dir + "/config.json";
  const auto config =
      nlohmann::json::parse(nacre::testing::ReadFile(config_path));
  const struct {
    const char* field;
    int value;
    const char* message;
  } cases[] = {
      {"vocab_size", 100,
       "model.embed_tokens.weight has shape [101, 52], the config implies "
       "[100, 52]"},
      {"intermediate_size", 101, "mlp.gate_proj.weight has shape [100, 52]"},
      {"num_key_value_heads", 3, "k_proj.weight has shape [20, 52]"},
      {"hidden_size", 48, "the config implies [101, 48]"},
      {"num_hidden_layers", 3, "model.layers.2.input_layernorm.weight is not"},
      {"num_hidden_layers", 1, "but num_hidden_layers is 1"},
  };
  for (const auto& bad : cases) {
    auto changed = config;
    changed[bad.field] = bad.value;
    nacre::testing::WriteFile(config_path, changed.dump());
    EXPECT_THAT(LoadError(dir), HasSubstr(bad.message)) << bad.field;
  }
  nacre::testing::WriteFile(config_path, config.dump());
  EXPECT_THAT(LoadModel(dir, backend_.get(), {1000, {}}).status().ToString(),
              HasSubstr("KV cache of 1000 bytes"));
}

// Runs the rows one by one and returns the logits of those from `first` on.
Logits RunFrom(LanguageModel& model, Sequence& sequence,
               absl::Span<const int32_t> tokens) {
  Logits logits;
  while (static_cast<size_t>(sequence.length()) < tokens.size()) {
    const size_t at = static_cast<size_t>(sequence.length());
    const size_t count = std::min<size_t>(7, tokens.size() - at);
    const auto rows = model.Forward(
        {{&sequence, tokens.subspan(at, count), static_cast<int>(count)}});
    EXPECT_TRUE(rows.ok());
    const size_t vocab = static_cast<size_t>(model.info().vocab_size);
    for (size_t i = 0; i < count; ++i) {
      const auto row = rows->subspan(i * vocab, vocab);
      logits.emplace_back(row.begin(), row.end());
    }
  }
  return logits;
}

TEST_P(TransformerTest, SharedPrefixesChangeNoBit) {
  const std::string dir = TestFolder("prefix");
  WriteTinyCheckpoint({}, dir);
  const auto plain = LoadFrom(dir);
  const auto cached = *LoadModel(dir, backend_.get(), {1 << 22, {}, true});
  const int64_t capacity = cached->kv_free_tokens();
  const std::vector<int32_t> first = RandomTokens(75, 101, 3);
  std::vector<int32_t> second = RandomTokens(90, 101, 4);
  std::copy(first.begin(), first.begin() + 50, second.begin());

  auto sequence = *cached->NewSequenceWithPrefix(80, first);
  EXPECT_EQ(sequence->length(), 0);
  RunFrom(*cached, *sequence, first);
  sequence->Share(first);
  // While the first one still runs, and after it: 50 tokens are 3 blocks.
  for (const bool running : {true, false}) {
    if (!running) sequence.reset();
    auto other = *cached->NewSequenceWithPrefix(95, second);
    ASSERT_EQ(other->length(), 48);
    const Logits logits = RunFrom(*cached, *other, second);
    auto alone = *plain->NewSequence(95);
    const Logits truth = RunFrom(*plain, *alone, second);
    ASSERT_EQ(logits.size(), truth.size() - 48);
    for (size_t i = 0; i < logits.size(); ++i) {
      ASSERT_EQ(logits[i], truth[i + 48]) << i;
    }
  }
  EXPECT_EQ(cached->kv_free_tokens(), capacity);
}

TEST_P(TransformerTest, AnUntiedHeadMustBeThere) {
  const std::string dir = TestFolder("tied");
  TinyCheckpoint shape;
  shape.tie_word_embeddings = true;
  WriteTinyCheckpoint(shape, dir);
  const std::string config_path = dir + "/config.json";
  auto config = nlohmann::json::parse(nacre::testing::ReadFile(config_path));
  config["tie_word_embeddings"] = false;
  nacre::testing::WriteFile(config_path, config.dump());
  EXPECT_THAT(LoadError(dir), HasSubstr("tensor lm_head.weight is not"));
}

INSTANTIATE_TEST_SUITE_P(Backends, TransformerTest,
                         ::testing::Values(NACRE_MODEL_BACKENDS),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace nacre::model
