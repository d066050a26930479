// A target whose prompts are multiplied by cublasLt says what it says alone,
// whatever drafts for it, and goes on with what it said before wherever it is
// opened again. On the emulated device, with a cublasLt of the tests.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/kernels/cuda/cublas_fixture.h"
#include "tests/testing/in_process_pair.h"
#include "tests/testing/tiny_checkpoint.h"
#include "worker/engine/canary.h"

namespace nacre::worker {
namespace {

using nacre::testing::GenerateAlone;
using nacre::testing::InProcessPair;
using nacre::testing::PairRequest;
using speculation::Method;
using Ids = std::vector<int32_t>;

struct Loaded {
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<model::LanguageModel> model;
};

class PromptPairTest : public kernels::cuda::CublasTest {
 protected:
  PromptPairTest() {
    nacre::testing::WriteTinyCheckpoint({.hidden_size = 48,
                                         .intermediate_size = 72,
                                         .num_hidden_layers = 2,
                                         .num_attention_heads = 4,
                                         .num_key_value_heads = 2,
                                         .head_dim = 16,
                                         .vocab_size = 101,
                                         .max_position_embeddings = 512,
                                         .dtype = kernels::DType::kBF16},
                                        dir_);
    std::mt19937 random(3);
    for (int i = 0; i < 45; ++i) {
      request_.prompt.push_back(static_cast<int32_t>(random() % 101));
    }
    request_.max_tokens = 14;
    request_.sampling.seed = 11;
  }

  Loaded Load(bool prefix_cache) {
    Loaded loaded;
    loaded.backend = MakeBackend();
    loaded.model = *model::LoadModel(
        dir_, loaded.backend.get(),
        {.kv_cache_bytes = 2 << 20, .prefix_cache = prefix_cache});
    return loaded;
  }

  // What an engine says after the first `known` tokens of `answer`, which
  // another one has said. Of tokens alone hardly one would show a wrong bit.
  std::vector<TokenLogprobs> GoOn(model::LanguageModel* model,
                                  const std::vector<TokenLogprobs>& answer,
                                  int known) {
    std::vector<TokenLogprobs> said(answer.begin(), answer.begin() + known);
    target_worker::OpenTarget open;
    open.session_id = 1;
    open.token_ids = request_.prompt;
    for (const TokenLogprobs& token : said) {
      open.token_ids.push_back(token.token_id);
    }
    open.prompt_length = static_cast<int>(request_.prompt.size());
    open.max_tokens = request_.max_tokens;
    open.sampling = request_.sampling;
    open.ignore_eos = true;
    open.logprobs = 3;
    bool finished = false;
    target_worker::TargetEngine::Options options;
    options.model = model;
    options.now_ns = [this] { return now_ns_ += 1000; };
    options.suffixes = false;
    options.send = [&](StreamId, target_worker::TargetEvents events) {
      EXPECT_TRUE(events.common.failures.empty());
      for (const auto& [id, verdict, logprobs] : events.verdicts) {
        EXPECT_EQ(logprobs.size(), verdict.token_ids.size());
        said.insert(said.end(), logprobs.begin(), logprobs.end());
        finished = verdict.finish != speculation::FinishReason::kNone;
      }
    };
    target_worker::TargetEngine engine(std::move(options));
    target_worker::TargetCommands commands;
    commands.stream = 1;
    commands.open.push_back(std::move(open));
    engine.Push(std::move(commands));
    for (int i = 0; i < 200 && !finished; ++i) {
      EXPECT_TRUE(engine.RunOnce().ok());
    }
    EXPECT_TRUE(finished);
    return said;
  }

  const std::string dir_ = nacre::testing::TestFolder("prompt_pair");
  PairRequest request_;
  int64_t now_ns_ = 1000;
};

TEST_F(PromptPairTest, EveryMethodSaysTheSame) {
  Loaded target = Load(/*prefix_cache=*/true);
  // Guesses as it does, but for rounding.
  kernels::BackendOptions options;
  options.kind = "cpu";
  const auto draft_backend = *kernels::CreateBackend(options);
  const auto draft =
      *model::LoadModel(dir_, draft_backend.get(), {.kv_cache_bytes = 1 << 20});
  for (const float temperature : {0.0f, 0.9f}) {
    request_.sampling.temperature = temperature;
    const Ids expected = GenerateAlone(*target.model, request_);
    for (const Method method :
         {Method::kAr, Method::kSd, Method::kPearl, Method::kAsync}) {
      request_.method = method;
      InProcessPair pair(target.model.get(), draft.get(), /*seed=*/3);
      // The second time its prompt is in the cache.
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(pair.Generate(request_), expected)
            << speculation::MethodName(method) << " at " << temperature;
      }
    }
  }
}

// A library that begins to compute wrongly is found as a device is.
TEST_F(PromptPairTest, TheCanaryGoesBothWays) {
  Loaded target = Load(/*prefix_cache=*/false);
  Canary canary(target.model.get());
  EXPECT_TRUE(*canary.Ask());
  EXPECT_TRUE(*canary.Ask());
  state_->error = 0.25f;
  EXPECT_FALSE(*canary.Ask());
  state_->error = 0;
  EXPECT_TRUE(*canary.Ask());
}

TEST_F(PromptPairTest, OpenedAgainAtEveryCutItGoesOn) {
  request_.sampling.temperature = 1.0f;
  Loaded first = Load(/*prefix_cache=*/false);
  Loaded other = Load(/*prefix_cache=*/false);
  Loaded caching = Load(/*prefix_cache=*/true);
  const auto answer = GoOn(first.model.get(), {}, 0);
  ASSERT_EQ(answer.size(), static_cast<size_t>(request_.max_tokens));
  for (int known = 1; known < request_.max_tokens; ++known) {
    for (Loaded* loaded : {&first, &other, &caching}) {
      EXPECT_EQ(GoOn(loaded->model.get(), answer, known), answer) << known;
    }
  }
}

}  // namespace
}  // namespace nacre::worker
