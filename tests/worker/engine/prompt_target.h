// A target whose prompts are multiplied by a cublasLt of the tests, on the
// emulated device, and engines that go on with answers.
//
// Of the test's thread.

#ifndef TESTS_WORKER_ENGINE_PROMPT_TARGET_H_
#define TESTS_WORKER_ENGINE_PROMPT_TARGET_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "model/load_model.h"
#include "tests/kernels/cuda/cublas_fixture.h"
#include "tests/testing/in_process_pair.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::worker {

class PromptTarget : public kernels::cuda::CublasTest {
 protected:
  struct Loaded {
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<model::LanguageModel> model;
  };

  PromptTarget() {
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
  nacre::testing::PairRequest request_;
  int64_t now_ns_ = 1000;
};

}  // namespace nacre::worker

#endif  // TESTS_WORKER_ENGINE_PROMPT_TARGET_H_
