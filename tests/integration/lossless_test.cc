// Invariant 1 through the real processes: the tokens that ar, sd, pearl and
// async emit are those of the target alone, computed here without any service:
// real checkpoints, real prompts, greedy and sampled, every window, one stream
// and four at once.
//
// NACRE_LOSSLESS_PROMPTS=all (label slow) takes all 100 GSM8K and 164 HumanEval
// prompts; of trees a third of them.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/json.h"
#include "kernels/backend.h"
#include "model/load_model.h"
#include "model/model_backend.h"
#include "tests/integration/service_fixture.h"
#include "tests/testing/in_process_pair.h"
#include "tests/testing/tiny_checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace nacre::integration {
namespace {

constexpr int kMaxTokens = 64;
// The last prompts that leave room for 64 tokens in the context of 2048.
constexpr int kStreams = 4;

struct Setting {
  const char* name;
  SamplingParams sampling;
};

std::vector<Setting> Settings() {
  return {{"greedy", {}},
          {"T0.8", {.temperature = 0.8f, .seed = 20250101}},
          {"T1_topk40_topp0.9",
           {.temperature = 1.0f, .top_k = 40, .top_p = 0.9f, .seed = 7}},
          {"repetition1.2", {.temperature = 0.0f, .repetition_penalty = 1.2f}}};
}

struct Variant {
  v1::Method method;
  int window;  // 0: chosen by the service
  const char* ablation = "";
};

std::vector<Variant> Variants() {
  std::vector<Variant> variants = {{v1::METHOD_AR, 0},
                                   {v1::METHOD_SD, 0},
                                   {v1::METHOD_PEARL, 0},
                                   {v1::METHOD_ASYNC, 0}};
  for (int window : {1, 4, 16}) {
    variants.push_back({v1::METHOD_SD, window});
    variants.push_back({v1::METHOD_PEARL, window});
    variants.push_back({v1::METHOD_ASYNC, window});
  }
  for (const char* ablation : {"no-pre-verify", "no-post-verify"}) {
    variants.push_back({v1::METHOD_PEARL, 4, ablation});
  }
  return variants;
}

v1::GenerateRequest MakeRequest(const std::string& prompt,
                                const Setting& setting,
                                const Variant& variant) {
  v1::GenerateRequest request = Request(prompt, variant.method, kMaxTokens);
  if (variant.window > 0) {
    request.mutable_speculation()->set_window(variant.window);
  }
  request.mutable_speculation()->set_ablation(variant.ablation);
  v1::SamplingParams* sampling = request.mutable_sampling();
  sampling->set_temperature(setting.sampling.temperature);
  sampling->set_top_k(setting.sampling.top_k);
  sampling->set_top_p(setting.sampling.top_p);
  sampling->set_repetition_penalty(setting.sampling.repetition_penalty);
  sampling->set_seed(setting.sampling.seed);
  return request;
}

std::string Describe(const Setting& setting, const Variant& variant,
                     const std::string& prompt_id) {
  return std::string(setting.name) + " " + v1::Method_Name(variant.method) +
         " window " + std::to_string(variant.window) + " " + variant.ablation +
         " prompt " + prompt_id;
}

// The target's own autoregressive stream on the same backend as the service.
class TargetAlone {
 public:
  TargetAlone() {
    auto backend = model::CreateBackendFor(TargetModel(), {});
    EXPECT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    auto model = model::LoadModel(TargetModel(), backend_.get(), {});
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    auto tokenizer = tokenizer::LoadTokenizer(TargetModel());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  std::vector<int32_t> Generate(const std::string& prompt,
                                const Setting& setting) {
    testing::PairRequest request;
    request.prompt = *tokenizer_->Encode(prompt);
    request.max_tokens = kMaxTokens;
    request.sampling = setting.sampling;
    return testing::GenerateAlone(*model_, request);
  }

 private:
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<model::LanguageModel> model_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
};

bool TakesAllPrompts() {
  const char* all = std::getenv("NACRE_LOSSLESS_PROMPTS");
  return all != nullptr && std::string(all) == "all";
}

std::vector<tools::Prompt> LoadBoth(size_t num_gsm8k, size_t num_humaneval) {
  auto prompts = LoadPrompts("gsm8k_100.jsonl", num_gsm8k);
  const auto code = LoadPrompts("humaneval.jsonl", num_humaneval);
  prompts.insert(prompts.end(), code.begin(), code.end());
  return prompts;
}

std::vector<tools::Prompt> Prompts() {
  return TakesAllPrompts() ? LoadBoth(100, 164) : LoadBoth(20, 10);
}

std::vector<tools::Prompt> TreePrompts() {
  return TakesAllPrompts() ? LoadBoth(34, 54) : LoadBoth(4, 2);
}

class LosslessTest : public ::testing::Test {
 protected:
  void Check(const Setting& setting, const Variant& variant,
             const tools::Prompt& prompt,
             const std::vector<int32_t>& expected) {
    const auto complete =
        service_.Generate(MakeRequest(prompt.text, setting, variant));
    ASSERT_TRUE(complete.ok())
        << complete.status() << " " << Describe(setting, variant, prompt.id);
    const std::vector<int32_t> got(complete->token_ids().begin(),
                                   complete->token_ids().end());
    ASSERT_EQ(got, expected) << Describe(setting, variant, prompt.id);
    const v1::SpeculationReport& report = complete->speculation();
    EXPECT_LE(report.accepted(), report.verified());
    EXPECT_LE(report.verified(), report.drafted());
    EXPECT_EQ(report.committed(), expected.size());
    EXPECT_LE(report.rounds(), expected.size());
    accepted_ += report.accepted();
  }

  Service service_;
  TargetAlone alone_;
  std::atomic<uint64_t> accepted_{0};
};

TEST_F(LosslessTest, AllMethodsEqualTheTargetAlone) {
  const std::vector<tools::Prompt> prompts = Prompts();
  for (const Setting& setting : Settings()) {
    std::vector<std::vector<int32_t>> expected;
    for (const tools::Prompt& prompt : prompts) {
      expected.push_back(alone_.Generate(prompt.text, setting));
    }
    for (const Variant& variant : Variants()) {
      // Alone, then four at once.
      for (size_t i = 0; i < prompts.size(); ++i) {
        Check(setting, variant, prompts[i], expected[i]);
        if (HasFatalFailure()) return;
      }
      std::vector<std::thread> streams;
      for (int stream = 0; stream < kStreams; ++stream) {
        streams.emplace_back([&, stream] {
          for (size_t i = stream; i < prompts.size(); i += kStreams) {
            Check(setting, variant, prompts[i], expected[i]);
          }
        });
      }
      for (std::thread& stream : streams) stream.join();
      if (HasFatalFailure()) return;
    }
  }
  // The drafts really took part.
  EXPECT_GT(accepted_, 1000u);
  EXPECT_TRUE(service_.KvReturnsToEmpty());
}

// Choice i of a call is the answer to its seed + i.
TEST_F(LosslessTest, ChoicesEqualTheTargetAloneWithTheirSeeds) {
  constexpr uint32_t kChoices = 4;
  const std::vector<tools::Prompt> prompts = LoadPrompts("gsm8k_100.jsonl", 3);
  Setting setting{"T0.8", {.temperature = 0.8f, .seed = ~uint64_t{0} - 1}};
  std::set<std::vector<int32_t>> answers;
  for (const tools::Prompt& prompt : prompts) {
    std::vector<std::vector<int32_t>> expected;
    for (uint32_t i = 0; i < kChoices; ++i) {
      Setting choice = setting;
      choice.sampling.seed += i;
      expected.push_back(alone_.Generate(prompt.text, choice));
      answers.insert(expected.back());
    }
    for (const v1::Method method :
         {v1::METHOD_AR, v1::METHOD_SD, v1::METHOD_PEARL, v1::METHOD_ASYNC}) {
      v1::GenerateRequest request =
          MakeRequest(prompt.text, setting, {method, 0});
      request.set_n(kChoices);
      request.mutable_output()->set_stream(true);
      std::vector<std::vector<int32_t>> streamed(kChoices);
      const auto choices = service_.client().GenerateChoices(
          request, kCallTimeout, [&](uint32_t index, const v1::Chunk& chunk) {
            std::vector<int32_t>& ids = streamed.at(index);
            EXPECT_EQ(chunk.first_index(), ids.size());
            ids.insert(ids.end(), chunk.token_ids().begin(),
                       chunk.token_ids().end());
          });
      ASSERT_TRUE(choices.ok()) << choices.status();
      for (uint32_t i = 0; i < kChoices; ++i) {
        const v1::Complete& complete = (*choices)[i];
        EXPECT_EQ(complete.seed(), setting.sampling.seed + i);
        EXPECT_EQ(std::vector<int32_t>(complete.token_ids().begin(),
                                       complete.token_ids().end()),
                  expected[i])
            << Describe(setting, {method, 0}, prompt.id) << " choice " << i;
        EXPECT_EQ(streamed[i], expected[i]);
      }
    }
  }
  EXPECT_EQ(answers.size(), prompts.size() * kChoices);
  EXPECT_TRUE(service_.KvReturnsToEmpty());
}

enum class DraftOf {
  kPair,
  kForeign,      // random weights: nearly all that it says is wrong
  kAdversarial,  // likeliest of all it holds what it knows to be wrong
};

struct TreeCase {
  const char* name;
  DraftOf draft;
  bool suffixes;  // the target proposes tokens, too
  // Beside the shape that a request has without naming one.
  const char* tree = "";
  v1::Method method = v1::METHOD_ASYNC;
};

// A draft with the target's vocabulary that knows nothing of it.
std::string ForeignDraft() {
  testing::TinyCheckpoint shape;
  shape.vocab_size = 4096;
  shape.max_position_embeddings = 2048;
  const std::string folder = testing::TestFolder("foreign_draft");
  testing::WriteTinyCheckpoint(shape, folder);
  testing::WriteFile(folder + "/tokenizer.model",
                     testing::ReadFile(TargetModel() + "/tokenizer.model"));
  return folder;
}

// The pair's draft with its last norm negated, and so all of its logits.
std::string AdversarialDraft() {
  const std::string folder = testing::TestFolder("adversarial_draft");
  for (const char* name : {"/config.json", "/tokenizer.model"}) {
    testing::WriteFile(folder + name, testing::ReadFile(DraftModel() + name));
  }
  std::string bytes = testing::ReadFile(DraftModel() + "/model.safetensors");
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), sizeof(header_size));
  const size_t begin = sizeof(header_size) + header_size;
  const auto header = nlohmann::json::parse(
      bytes.substr(sizeof(header_size), static_cast<size_t>(header_size)));
  const auto offsets = header["model.norm.weight"]["data_offsets"];
  // The last byte of a bf16 has its sign.
  for (size_t i = offsets[0].get<size_t>() + 1; i < offsets[1].get<size_t>();
       i += 2) {
    bytes[begin + i] = static_cast<char>(bytes[begin + i] ^ 0x80);
  }
  testing::WriteFile(folder + "/model.safetensors", bytes);
  return folder;
}

class LosslessBranchesTest : public ::testing::TestWithParam<TreeCase> {};

// Drafts that send branches, which the target's steps verify; one stream, then
// four that share each step.
TEST_P(LosslessBranchesTest, EqualTheTargetAlone) {
  tools::Cluster::Options options = Service::Options(/*drafts=*/2);
  options.more_args.coordinator = {"--draft-rows", "6"};
  options.metrics_port = 0;
  if (GetParam().draft == DraftOf::kForeign) {
    options.draft_model = ForeignDraft();
  } else if (GetParam().draft == DraftOf::kAdversarial) {
    options.draft_model = AdversarialDraft();
  }
  if (GetParam().suffixes) {
    options.more_args.target = {"--suffix-drafter", "on"};
  }
  Service service(std::move(options));
  TargetAlone alone;
  const std::vector<tools::Prompt> prompts = TreePrompts();
  std::vector<Setting> settings = Settings();
  settings.push_back(
      {"T1_penalties",
       {.temperature = 1.0f, .repetition_penalty = 1.1f, .seed = 99}});
  std::atomic<uint64_t> drafted = 0, verified = 0, ranks = 0;
  const auto check = [&](const Setting& setting, const tools::Prompt& prompt,
                         const std::vector<int32_t>& expected, int window) {
    const Variant variant = {GetParam().method, window};
    v1::GenerateRequest request = MakeRequest(prompt.text, setting, variant);
    request.mutable_speculation()->set_tree(GetParam().tree);
    const auto complete = service.Generate(request);
    ASSERT_TRUE(complete.ok()) << complete.status();
    EXPECT_EQ(std::vector<int32_t>(complete->token_ids().begin(),
                                   complete->token_ids().end()),
              expected)
        << Describe(setting, variant, prompt.id);
    drafted += complete->speculation().drafted();
    verified += complete->speculation().verified();
    for (const uint64_t count : complete->speculation().ranks()) ranks += count;
  };
  for (const Setting& setting : settings) {
    std::vector<std::vector<int32_t>> expected;
    for (const tools::Prompt& prompt : prompts) {
      expected.push_back(alone.Generate(prompt.text, setting));
      check(setting, prompt, expected.back(), /*window=*/0);
      check(setting, prompt, expected.back(), /*window=*/3);
    }
    std::vector<std::thread> streams;
    for (int stream = 0; stream < kStreams; ++stream) {
      streams.emplace_back([&, stream] {
        for (size_t i = stream; i < prompts.size(); i += kStreams) {
          const int window = stream % 2 == 0 ? 0 : 6;
          check(setting, prompts[i], expected[i], window);
        }
      });
    }
    for (std::thread& stream : streams) stream.join();
  }
  // Branches came, and their ranks were told.
  EXPECT_GT(drafted, verified);
  EXPECT_GT(ranks, 0u);
  EXPECT_GT(service.WastedBranches(), 0);
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

constexpr char kEagle2[] = "eagle2:k=4,depth=4";
constexpr char kStatic[] =
    "static:[[0],[1],[2],[0,0],[0,1],[1,0],[9],[0,0,0],[0,0,0,0]]";

INSTANTIATE_TEST_SUITE_P(
    Trees, LosslessBranchesTest,
    ::testing::Values(
        TreeCase{"good", DraftOf::kPair, false},
        TreeCase{"foreign", DraftOf::kForeign, false},
        TreeCase{"good_and_suffixes", DraftOf::kPair, true},
        TreeCase{"cape", DraftOf::kPair, false, "cape"},
        TreeCase{"cape_foreign", DraftOf::kForeign, true, "cape"},
        TreeCase{"eagle2", DraftOf::kPair, true, kEagle2},
        TreeCase{"eagle2_foreign", DraftOf::kForeign, false, kEagle2},
        TreeCase{"static", DraftOf::kPair, false, kStatic},
        TreeCase{"static_foreign", DraftOf::kForeign, true, kStatic},
        TreeCase{"sd_cape", DraftOf::kPair, false, "cape", v1::METHOD_SD},
        TreeCase{"sd_best", DraftOf::kPair, false, "best", v1::METHOD_SD},
        TreeCase{"sd_eagle2_foreign", DraftOf::kForeign, false, kEagle2,
                 v1::METHOD_SD},
        TreeCase{"pearl_eagle2", DraftOf::kPair, false, kEagle2,
                 v1::METHOD_PEARL},
        TreeCase{"pearl_static", DraftOf::kPair, false, kStatic,
                 v1::METHOD_PEARL},
        TreeCase{"pearl_best_foreign", DraftOf::kForeign, false, "best",
                 v1::METHOD_PEARL},
        TreeCase{"pearl_cape", DraftOf::kPair, false, "cape", v1::METHOD_PEARL},
        TreeCase{"adversarial", DraftOf::kAdversarial, true},
        TreeCase{"eagle2_adversarial", DraftOf::kAdversarial, false, kEagle2},
        TreeCase{"sd_cape_adversarial", DraftOf::kAdversarial, false, "cape",
                 v1::METHOD_SD},
        TreeCase{"pearl_static_adversarial", DraftOf::kAdversarial, false,
                 kStatic, v1::METHOD_PEARL}),
    [](const auto& info) { return std::string(info.param.name); });

// Different methods and parameters side by side on the same workers.
TEST_F(LosslessTest, MixedStreamsDoNotDisturbEachOther) {
  const std::vector<tools::Prompt> prompts = LoadPrompts("gsm8k_100.jsonl", 12);
  const std::vector<Setting> settings = Settings();
  const std::vector<Variant> variants = Variants();
  std::vector<std::vector<std::vector<int32_t>>> expected(settings.size());
  for (size_t s = 0; s < settings.size(); ++s) {
    for (const tools::Prompt& prompt : prompts) {
      expected[s].push_back(alone_.Generate(prompt.text, settings[s]));
    }
  }
  std::vector<std::thread> streams;
  for (size_t stream = 0; stream < 12; ++stream) {
    streams.emplace_back([&, stream] {
      for (size_t round = 0; round < 6; ++round) {
        const size_t p = (stream + round) % prompts.size();
        const size_t s = (stream + round) % settings.size();
        const size_t v = (stream * 7 + round) % variants.size();
        Check(settings[s], variants[v], prompts[p], expected[s][p]);
      }
    });
  }
  for (std::thread& stream : streams) stream.join();
  EXPECT_TRUE(service_.KvReturnsToEmpty());
}

}  // namespace
}  // namespace nacre::integration
