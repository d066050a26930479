#include "worker/process/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "kernels/backend_factory.h"
#include "kernels/cpu/coded_weights.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/mapped_model.h"
#include "model/memory_needs.h"
#include "model/model_backend.h"
#include "tests/model/with_tensors.h"
#include "tests/testing/renumbered_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::worker {
namespace {

using nacre::testing::TestFolder;
using nacre::testing::TinyCheckpoint;
using nacre::testing::WriteRenumberedCheckpoint;
using nacre::testing::WriteTinyCheckpoint;
using ::testing::HasSubstr;

WorkerOptions OptionsFor(const std::string& dir) {
  WorkerOptions options;
  options.model_dir = dir;
  options.compute.backend.kind = "reference";
  return options;
}

TEST(LoadTest, TellsTheCoordinatorWhatWasLoaded) {
  WorkerOptions options = OptionsFor(NACRE_MODELS "/draft/");
  options.compute.max_memory_bytes = 10 << 20;
  const absl::StatusOr<LoadedModel> loaded =
      LoadForWorker(options, wire::WorkerRole::kTarget);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const model::ModelInfo& info = loaded->model->info();
  const wire::Hello hello =
      MakeHello(options, *loaded, wire::WorkerRole::kDraft, "127.0.0.1:5",
                {{1, 100}, {2, 110}});
  EXPECT_EQ(hello.role, wire::WorkerRole::kDraft);
  EXPECT_EQ(hello.address, "127.0.0.1:5");
  EXPECT_EQ(hello.incarnation.size(), 16u);
  EXPECT_EQ(hello.fingerprint, info.fingerprint);
  EXPECT_EQ(hello.numerics_id, info.numerics_id);
  EXPECT_EQ(hello.model_name, "draft");
  EXPECT_EQ(hello.model_vocab_size, 4096);
  EXPECT_EQ(hello.tokenizer_vocab_size, 4096);
  EXPECT_EQ(hello.context_length, info.context_length);
  EXPECT_EQ(hello.kv_capacity_tokens, info.kv_capacity_tokens);
  EXPECT_FALSE(hello.eos_token_ids.empty());
  EXPECT_THAT(
      hello.step_times_ns,
      ::testing::ElementsAre(::testing::Pair(1, 100), ::testing::Pair(2, 110)));
  // A CPU computes layer by layer; only drafts end a step early.
  EXPECT_TRUE(hello.abandons_steps);
  EXPECT_FALSE(MakeHello(options, *loaded, wire::WorkerRole::kTarget, "", {})
                   .abandons_steps);
  WorkerOptions on_gpu = options;
  on_gpu.compute.backend.kind = "cuda";
  EXPECT_FALSE(MakeHello(on_gpu, *loaded, wire::WorkerRole::kDraft, "", {})
                   .abandons_steps);
  // Each start of the process is another incarnation.
  EXPECT_NE(
      MakeHello(options, *loaded, wire::WorkerRole::kDraft, "", {}).incarnation,
      hello.incarnation);
}

TEST(LoadTest, AdvertisesWhatItIsTold) {
  WorkerOptions options = OptionsFor(NACRE_MODELS "/draft");
  options.advertise = "pod-7:9";
  const absl::StatusOr<LoadedModel> loaded =
      LoadForWorker(options, wire::WorkerRole::kTarget);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(
      MakeHello(options, *loaded, wire::WorkerRole::kDraft, "127.0.0.1:5", {})
          .address,
      "pod-7:9");
}

TEST(LoadTest, TheKvCacheIsAsLargeAsAskedOr32Contexts) {
  WorkerOptions options = OptionsFor(NACRE_MODELS "/draft");
  const absl::StatusOr<LoadedModel> loaded =
      LoadForWorker(options, wire::WorkerRole::kTarget);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const model::ModelInfo& info = loaded->model->info();
  EXPECT_EQ(info.kv_capacity_tokens, 32 * info.context_length);

  options.compute.max_memory_bytes = 1 << 20;
  const absl::StatusOr<LoadedModel> small =
      LoadForWorker(options, wire::WorkerRole::kTarget);
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_LT(small->model->info().kv_capacity_tokens, info.kv_capacity_tokens);

  options.compute.backend.kv_type = "bf16";
  const absl::StatusOr<LoadedModel> bf16 =
      LoadForWorker(options, wire::WorkerRole::kTarget);
  ASSERT_TRUE(bf16.ok()) << bf16.status();
  // Twice as many blocks, and one more where half a block was left over.
  const int64_t f32_blocks = small->model->info().kv_capacity_tokens / 16;
  const int64_t bf16_blocks = bf16->model->info().kv_capacity_tokens / 16;
  EXPECT_EQ(bf16_blocks / 2, f32_blocks);
  options.compute.max_memory_bytes.reset();
  const absl::StatusOr<LoadedModel> contexts =
      LoadForWorker(options, wire::WorkerRole::kTarget);
  ASSERT_TRUE(contexts.ok()) << contexts.status();
  EXPECT_EQ(contexts->model->info().kv_capacity_tokens,
            32 * info.context_length);
}

// Nothing else is looked at before: weights may take minutes.
TEST(LoadTest, AFolderOfThePrefixCacheIsLookedAtFirst) {
  WorkerOptions options = OptionsFor("/no/such/model");
  options.compute.prefix_store = {1 << 20, "/no/such/folder"};
  for (const int ranks : {0, 2}) {
    options.compute.tensor_parallel = ranks;
    const absl::Status status =
        LoadForWorker(options, wire::WorkerRole::kTarget).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("--prefix-cache-dir: a file in /no/such/folder: "));
  }
  options.compute.prefix_store = {int64_t{1} << 62, TestFolder("full")};
  const absl::Status full =
      LoadForWorker(options, wire::WorkerRole::kTarget).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("--prefix-cache-dir: there is no room for "));
}

TEST(LoadTest, SplitsAModelAmongRanks) {
  WorkerOptions options = OptionsFor(NACRE_MODELS "/target");
  options.compute.max_memory_bytes = 10 << 20;
  const absl::StatusOr<LoadedModel> whole =
      LoadForWorker(options, wire::WorkerRole::kTarget);
  ASSERT_TRUE(whole.ok()) << whole.status();
  options.compute.tensor_parallel = 2;
  const absl::StatusOr<LoadedModel> split =
      LoadForWorker(options, wire::WorkerRole::kTarget);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->backend, nullptr);
  const model::ModelInfo& info = split->model->info();
  EXPECT_EQ(info.fingerprint, whole->model->info().fingerprint);
  EXPECT_EQ(info.kv_capacity_tokens, whole->model->info().kv_capacity_tokens);
  EXPECT_THAT(info.numerics_id, HasSubstr("-shards8-"));
  EXPECT_THAT(info.description, HasSubstr("on 2 ranks"));
  // Ranks are not asked whether to go on.
  EXPECT_FALSE(MakeHello(options, *split, wire::WorkerRole::kDraft, "a:1", {})
                   .abandons_steps);

  options.compute.tensor_parallel = 8;
  EXPECT_THAT(
      std::string(
          LoadForWorker(options, wire::WorkerRole::kTarget).status().message()),
      HasSubstr("num_attention_heads is 4, which 8 ranks"));
}

TEST(LoadTest, WarnsOfTensorsThatNothingReads) {
  const std::string dir = TestFolder("draft");
  std::filesystem::copy(NACRE_MODELS "/draft", dir);
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  const auto load = [&] {
    return LoadForWorker(OptionsFor(dir), wire::WorkerRole::kTarget).status();
  };
  EXPECT_EQ(load(), absl::OkStatus());
  const std::string whole = log.str();
  model::AddTensors(dir, {{"lm_head.bias", {kernels::DType::kF32, {8}, ""}}});
  EXPECT_EQ(load(), absl::OkStatus());
  spdlog::set_default_logger(before);
  EXPECT_THAT(whole, ::testing::Not(HasSubstr("no use for")));
  EXPECT_THAT(log.str(),
              HasSubstr("[warning] model: 1 tensor of the checkpoint "
                        "that the config has no use for: "
                        "lm_head.bias"));
}

TEST(LoadTest, SaysWhatIsMissing) {
  EXPECT_THAT(std::string(LoadForWorker(OptionsFor("/no/such/model"),
                                        wire::WorkerRole::kTarget)
                              .status()
                              .message()),
              HasSubstr("/no/such/model"));
  const std::string dir = TestFolder("no_tokenizer");
  WriteTinyCheckpoint(TinyCheckpoint(), dir);
  EXPECT_EQ(
      LoadForWorker(OptionsFor(dir), wire::WorkerRole::kTarget).status().code(),
      absl::StatusCode::kNotFound);
  WorkerOptions unknown = OptionsFor(NACRE_MODELS "/draft");
  unknown.compute.backend.kind = "abacus";
  EXPECT_THAT(
      std::string(
          LoadForWorker(unknown, wire::WorkerRole::kTarget).status().message()),
      HasSubstr("abacus"));
  unknown = OptionsFor(NACRE_MODELS "/draft");
  unknown.compute.backend.kv_type = "f8";
  EXPECT_THAT(
      std::string(
          LoadForWorker(unknown, wire::WorkerRole::kTarget).status().message()),
      HasSubstr("kv-type is \"f8\""));
}

TEST(LoadTest, RefusesWhatTheHostHasNoRoomFor) {
  const WorkerOptions options = OptionsFor(NACRE_MODELS "/draft");
  const auto backend = *kernels::CreateBackend(options.compute.backend);
  const int64_t needed =
      model::MemoryNeeds::Of(**model::Checkpoint::Open(options.model_dir),
                             *model::ReadConfig(options.model_dir), *backend)
          .loaded();
  const MemoryFiles memory = {{"/no/file", "/no/folder"},
                              TestFolder("little_memory") + "/meminfo"};
  nacre::testing::WriteFile(memory.machine, "MemTotal: 100 kB\n");
  const absl::Status status =
      LoadForWorker(options, wire::WorkerRole::kTarget, memory).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("need ", needed,
                                     " bytes of memory, the limit is 102400 "
                                     "(the machine)")));
}

// What a worker that loads `dir` logs.
std::string LogOf(const std::string& dir) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  WorkerOptions options = OptionsFor(dir);
  options.compute.backend.kind = "cpu";
  options.compute.backend.weights = "bf16a16";
  const auto loaded = LoadForWorker(options, wire::WorkerRole::kTarget);
  spdlog::set_default_logger(before);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return log.str();
}

// Gives the bf16 weights of a file 40 exponents in turn.
void SpreadExponents(const std::string& path) {
  std::string file = ReadRegularFile(path, 64 << 20).value();
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  uint32_t exponent = 0;
  for (size_t at = sizeof(header) + header; at + 1 < file.size(); at += 2) {
    uint16_t weight = 0;
    std::memcpy(&weight, file.data() + at, sizeof(weight));
    weight = static_cast<uint16_t>((weight & 0x807F) | (100 + exponent) << 7);
    std::memcpy(file.data() + at, &weight, sizeof(weight));
    exponent = (exponent + 7) % 40;
  }
  nacre::testing::WriteFile(path, file);
}

TEST(LoadTest, SaysWhatIsIn12Bits) {
  if (kernels::FindCodedKernels() == nullptr) {
    GTEST_SKIP() << "no AVX-512 with VBMI and BF16 here";
  }
  const std::string dir = TestFolder("coded");
  WriteTinyCheckpoint(
      {.hidden_size = 512, .vocab_size = 4096, .dtype = kernels::DType::kBF16},
      dir);
  std::filesystem::copy(NACRE_MODELS "/target/tokenizer.model", dir);
  // Of both one matrix has 1 MB, the head.
  EXPECT_THAT(LogOf(dir),
              HasSubstr("1 of 1 large bf16 matrices are in 12 bits a weight, "
                        "which takes 0.001 GB less\n"));
  EXPECT_THAT(LogOf(NACRE_MODELS "/target"),
              HasSubstr("1 of 1 large bf16 matrices are in 12 bits a weight, "
                        "which takes 0.001 GB less\n"));
  SpreadExponents(dir + "/model.safetensors");
  EXPECT_THAT(LogOf(dir),
              HasSubstr("0 of 1 large bf16 matrices are in 12 bits a weight; 1 "
                        "have too many uncommon exponents\n"));
}

// Memory for the least that the weights may take is enough to try.
TEST(LoadTest, CountsWhatMayBeSaved) {
  if (kernels::FindCodedKernels() == nullptr) {
    GTEST_SKIP() << "no AVX-512 with VBMI and BF16 here";
  }
  WorkerOptions options = OptionsFor(NACRE_MODELS "/target");
  options.compute.backend.kind = "cpu";  // whose auto is bf16a16 here
  const auto backend =
      *model::CreateBackendFor(options.model_dir, options.compute.backend);
  const auto needs =
      model::MemoryNeeds::Of(**model::Checkpoint::Open(options.model_dir),
                             *model::ReadConfig(options.model_dir), *backend);
  const int64_t least_kb = (needs.loaded_at_least() + 1023) / 1024;
  ASSERT_LT(least_kb * 1024, needs.loaded());
  const MemoryFiles memory = {{"/no/file", "/no/folder"},
                              TestFolder("just_enough") + "/meminfo"};
  const auto load_in = [&](int64_t kb) {
    nacre::testing::WriteFile(memory.machine,
                              absl::StrCat("MemTotal: ", kb, " kB\n"));
    return LoadForWorker(options, wire::WorkerRole::kTarget, memory).status();
  };
  EXPECT_TRUE(load_in(least_kb).ok());
  EXPECT_THAT(
      std::string(load_in(least_kb - 1).message()),
      HasSubstr(absl::StrCat("need ", needs.loaded_at_least(), " bytes")));
}

// The logits of a text's last token, the ids being the target's.
std::vector<float> LogitsOf(model::LanguageModel& model,
                            const std::vector<int32_t>& ids) {
  const auto sequence = model.NewSequence(static_cast<int>(ids.size()));
  EXPECT_TRUE(sequence.ok()) << sequence.status();
  const model::SequenceRows rows = {
      .sequence = sequence->get(), .token_ids = ids, .num_logits = 1};
  const auto logits = model.Forward({&rows, 1});
  EXPECT_TRUE(logits.ok()) << logits.status();
  return {logits->begin(), logits->end()};
}

TEST(LoadTest, ADraftOfAnotherVocabularySpeaksTheTargets) {
  const std::string dir = TestFolder("renumbered");
  constexpr int kRenamedEvery = 5;
  WriteRenumberedCheckpoint(NACRE_MODELS "/draft", kRenamedEvery, dir);
  WorkerOptions options = OptionsFor(dir);
  options.vocabulary.target_tokenizer = NACRE_MODELS "/target";
  const absl::StatusOr<LoadedModel> loaded =
      LoadForWorker(options, wire::WorkerRole::kDraft);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_NEAR(loaded->vocabulary_share, 0.8, 0.02);
  EXPECT_EQ(MakeHello(options, *loaded, wire::WorkerRole::kDraft, "h:1", {})
                .vocabulary_share,
            loaded->vocabulary_share);
  const absl::StatusOr<LoadedModel> original = LoadForWorker(
      OptionsFor(NACRE_MODELS "/draft"), wire::WorkerRole::kDraft);
  ASSERT_TRUE(original.ok()) << original.status();
  EXPECT_EQ(loaded->tokenizer->VocabularyHash(4096),
            original->tokenizer->VocabularyHash(4096));
  std::vector<int32_t> ids = {1};
  for (int32_t id = 301; ids.size() < 40; id += 90) ids.push_back(id);
  const std::vector<float> mapped = LogitsOf(*loaded->model, ids);
  const std::vector<float> own = LogitsOf(*original->model, ids);
  ASSERT_EQ(mapped.size(), own.size());
  for (int32_t id = 300; id < 4096; ++id) {
    const auto at = static_cast<size_t>(id);
    // Of a character the draft has the byte still.
    if (original->tokenizer->IdToPiece(id).size() == 1) continue;
    if (id % kRenamedEvery == 0) {
      EXPECT_EQ(mapped[at], model::kLeastLogit) << id;
    } else {
      EXPECT_EQ(mapped[at], own[at]) << id;
    }
  }
  options.vocabulary.least_share = 0.9;
  const absl::Status few =
      LoadForWorker(options, wire::WorkerRole::kDraft).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(few)) << few;
  EXPECT_THAT(std::string(few.message()),
              HasSubstr("--least-vocabulary-share asks for 90.0 %"));
  // Tokenizers alone say so: weights may take minutes.
  std::filesystem::remove(dir + "/model.safetensors");
  EXPECT_EQ(LoadForWorker(options, wire::WorkerRole::kDraft).status(), few);
  options.vocabulary.target_tokenizer = "/no/such/folder";
  EXPECT_THAT(
      std::string(
          LoadForWorker(options, wire::WorkerRole::kDraft).status().message()),
      HasSubstr("/no/such/folder"));
  // What is wrong with the draft's folder goes first.
  std::filesystem::remove_all(dir);
  EXPECT_THAT(
      std::string(
          LoadForWorker(options, wire::WorkerRole::kDraft).status().message()),
      HasSubstr("model folder " + dir + " does not exist"));
}

// As Qwen's: rows of the head that no piece has may be sampled.
TEST(LoadTest, AMappedDraftIsFedAllIdsOfTheTargetsHead) {
  const std::string draft = TestFolder("renumbered");
  WriteRenumberedCheckpoint(NACRE_MODELS "/draft", 0, draft);
  const std::string target = TestFolder("padded");
  TinyCheckpoint padded;
  padded.vocab_size = 4100;
  WriteTinyCheckpoint(padded, target);
  std::filesystem::copy_file(NACRE_MODELS "/target/tokenizer.model",
                             target + "/tokenizer.model");
  WorkerOptions options = OptionsFor(draft);
  options.vocabulary.target_tokenizer = target;
  const absl::StatusOr<LoadedModel> loaded =
      LoadForWorker(options, wire::WorkerRole::kDraft);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->model->info().vocab_size, 4100);
  EXPECT_EQ(LogitsOf(*loaded->model, {1, 4099}).size(), 4100u);
}

// The bundled tokenizer, and behind its 4096 ids two of a chat.
std::string FolderForChats(const std::string& name, bool are_special) {
  const std::string dir = TestFolder(name);
  std::filesystem::copy_file(NACRE_MODELS "/target/tokenizer.model",
                             dir + "/tokenizer.model");
  const std::string rest = are_special ? R"(", "special": true})" : "\"}";
  nacre::testing::WriteFile(
      dir + "/tokenizer_config.json",
      absl::StrCat(R"({"added_tokens_decoder": {"4096": {"content": ")",
                   "<|im_start|>", rest, R"(, "4097": {"content": ")",
                   "<|im_end|>", rest, "}}"));
  return dir;
}

TEST(LoadTest, ADraftThatLacksOnlyTokensOfChatsReadsThem) {
  WorkerOptions options = OptionsFor(NACRE_MODELS "/draft");
  options.vocabulary.target_tokenizer = FolderForChats("chats", true);
  const absl::StatusOr<LoadedModel> loaded =
      LoadForWorker(options, wire::WorkerRole::kDraft);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->vocabulary_share, 1);
  EXPECT_EQ(loaded->model->info().vocab_size, 4098);
  EXPECT_EQ(loaded->tokenizer->vocab_size(), 4098);
  const absl::StatusOr<LoadedModel> original = LoadForWorker(
      OptionsFor(NACRE_MODELS "/draft"), wire::WorkerRole::kDraft);
  ASSERT_TRUE(original.ok()) << original.status();
  std::vector<float> expected = LogitsOf(*original->model, {1, 300, 71});
  expected.resize(4098, model::kLeastLogit);
  EXPECT_EQ(LogitsOf(*loaded->model, {1, 300, 71}), expected);
  EXPECT_EQ(LogitsOf(*loaded->model, {1, 4096, 300, 4097}).size(), 4098u);
}

TEST(LoadTest, TheShareOfADraftThatLacksTheLastPiecesIsSaid) {
  WorkerOptions options = OptionsFor(NACRE_MODELS "/draft");
  options.vocabulary.target_tokenizer = FolderForChats("pieces", false);
  const absl::StatusOr<LoadedModel> loaded =
      LoadForWorker(options, wire::WorkerRole::kDraft);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_LT(loaded->vocabulary_share, 1);
  EXPECT_GT(loaded->vocabulary_share, 0.999);
  options.vocabulary.least_share = 0.9999;
  const absl::Status few =
      LoadForWorker(options, wire::WorkerRole::kDraft).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(few)) << few;
  EXPECT_THAT(std::string(few.message()),
              HasSubstr("--least-vocabulary-share asks for 100.0 %"));
}

// As Qwen's: its head has rows for them, though its tokenizer lacks them.
TEST(LoadTest, ADraftWhoseModelHasTheIdsNeedsNoMap) {
  const std::string dir = TestFolder("padded");
  TinyCheckpoint padded;
  padded.vocab_size = 4100;
  WriteTinyCheckpoint(padded, dir);
  std::filesystem::copy_file(NACRE_MODELS "/target/tokenizer.model",
                             dir + "/tokenizer.model");
  WorkerOptions options = OptionsFor(dir);
  options.vocabulary.target_tokenizer = FolderForChats("chats", true);
  const absl::StatusOr<LoadedModel> loaded =
      LoadForWorker(options, wire::WorkerRole::kDraft);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->vocabulary_share, 1);
  EXPECT_EQ(dynamic_cast<model::MappedModel*>(loaded->model.get()), nullptr);
}

TEST(LoadTest, ADraftOfTheSameVocabularyIsLeftAsItIs) {
  WorkerOptions options = OptionsFor(NACRE_MODELS "/draft");
  options.vocabulary.target_tokenizer = NACRE_MODELS "/target";
  const absl::StatusOr<LoadedModel> loaded =
      LoadForWorker(options, wire::WorkerRole::kDraft);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->vocabulary_share, 1);
  EXPECT_EQ(dynamic_cast<model::MappedModel*>(loaded->model.get()), nullptr);
  const absl::Status of_target =
      LoadForWorker(options, wire::WorkerRole::kTarget).status();
  EXPECT_TRUE(absl::IsInvalidArgument(of_target)) << of_target;
  options.vocabulary.target_tokenizer = "/no/such/folder";
  EXPECT_THAT(
      std::string(
          LoadForWorker(options, wire::WorkerRole::kDraft).status().message()),
      HasSubstr("/no/such/folder"));
}

// It has no embedding and no tokenizer of its own.
TEST(LoadTest, AnEagleDraftTakesWhatItLacksOfItsTarget) {
  WorkerOptions options = OptionsFor(NACRE_MODELS "/eagle");
  EXPECT_THAT(
      std::string(
          LoadForWorker(options, wire::WorkerRole::kDraft).status().message()),
      HasSubstr("--target-tokenizer DIR, the target's model, is required"));
  options.vocabulary.target_tokenizer = NACRE_MODELS "/target";
  const absl::StatusOr<LoadedModel> loaded =
      LoadForWorker(options, wire::WorkerRole::kDraft);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->vocabulary_share, 1);
  const wire::Hello hello =
      MakeHello(options, *loaded, wire::WorkerRole::kDraft, "h:1", {});
  EXPECT_EQ(hello.model_name, "eagle");
  EXPECT_EQ(hello.model_vocab_size, 4096);
  EXPECT_EQ(hello.context_length, 2048);
  EXPECT_EQ(hello.fingerprint.size(), 64u);
  // 32 contexts of one layer.
  EXPECT_EQ(hello.kv_capacity_tokens, 32 * 2048);
  const std::vector<float> logits = LogitsOf(*loaded->model, {1, 300, 301});
  EXPECT_EQ(logits.size(), 4096u);
  EXPECT_NE(logits.front(), logits.back());
  options.compute.tensor_parallel = 2;
  EXPECT_TRUE(absl::IsUnimplemented(
      LoadForWorker(options, wire::WorkerRole::kDraft).status()));
  options.compute.tensor_parallel = 0;
  options.vocabulary.target_tokenizer.clear();
  EXPECT_THAT(
      std::string(
          LoadForWorker(options, wire::WorkerRole::kTarget).status().message()),
      HasSubstr("is an EAGLE draft, no target"));
}

TEST(LoadTest, HeadsAreNoModel) {
  for (const wire::WorkerRole role :
       {wire::WorkerRole::kDraft, wire::WorkerRole::kTarget}) {
    const absl::Status status =
        LoadForWorker(OptionsFor(NACRE_MODELS "/medusa"), role).status();
    EXPECT_THAT(std::string(status.message()),
                ::testing::StartsWith(
                    NACRE_MODELS "/medusa: Medusa heads, which --medusa of a "
                                 "target worker takes; --model takes a model"));
  }
}

TEST(LoadTest, ATargetThatIsSplitHasNoDraftBesideIt) {
  WorkerOptions options = OptionsFor(NACRE_MODELS "/target");
  options.compute.tensor_parallel = 2;
  const auto refusal = [&options] {
    const absl::Status status =
        LoadForWorker(options, wire::WorkerRole::kTarget).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    return std::string(status.message());
  };
  for (size_t i = 0; i < OwnDraftKinds().size(); ++i) {
    options.own_drafts.paths[i] = "/no/such/draft";
    EXPECT_EQ(
        refusal(),
        absl::StrCat("--tensor-parallel 2 and --", OwnDraftKinds()[i].flag,
                     " exclude each other: a model that is split shows "
                     "no draft what it computes"));
    options.own_drafts.paths[i].clear();
  }
  options.compute.tensor_parallel = 1;
  options.features.draft = "/no/such/draft";
  EXPECT_THAT(refusal(),
              HasSubstr("--tensor-parallel 1 and --publish-features exclude"));
}

TEST(LoadTest, AGlideDraftIsNotSplit) {
  WorkerOptions options = OptionsFor(NACRE_MODELS "/glide");
  options.compute.tensor_parallel = 2;
  const absl::Status status =
      LoadForWorker(options, wire::WorkerRole::kDraft).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_EQ(status.message(), "--tensor-parallel 2: " NACRE_MODELS
                              "/glide is a GliDe draft, which is not split");
}

TEST(LoadTest, ATokenizerWithMoreIdsThanTheModelIsRefused) {
  const std::string dir = TestFolder("small_head");
  WriteTinyCheckpoint(TinyCheckpoint(), dir);  // 101 ids
  for (const char* file : {"tokenizer.model", "tokenizer_config.json"}) {
    std::filesystem::copy_file(
        std::string(NACRE_MODELS "/draft/") + file, dir + "/" + file,
        std::filesystem::copy_options::overwrite_existing);
  }
  const absl::Status status =
      LoadForWorker(OptionsFor(dir), wire::WorkerRole::kTarget).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("has 4096 ids, the model only 101"));
}

}  // namespace
}  // namespace nacre::worker
