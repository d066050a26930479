// A target engine over a real model and a real draft of what it computes.

#ifndef TESTS_TARGET_WORKER_REAL_ENGINE_H_
#define TESTS_TARGET_WORKER_REAL_ENGINE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend_factory.h"
#include "model/eagle_projection.h"
#include "model/future_heads.h"
#include "model/load_model.h"
#include "target_worker/target_engine.h"
#include "tests/target_worker/knowing_drafter.h"
#include "tests/target_worker/target_fixture.h"

#ifndef NACRE_REAL_BACKEND
#define NACRE_REAL_BACKEND "cpu"
#endif

namespace nacre::target_worker {

inline std::string RealFolder(const std::string& name) {
  return std::string(NACRE_TEST_DATA) + "/model/" + name;
}

// Calls of the drafter take no time of the engine's clock.
class TimelessDrafter : public model::FeatureDrafter {
 public:
  TimelessDrafter(model::FeatureDrafter* drafter, int64_t* now_ns)
      : drafter_(drafter), now_ns_(now_ns) {}
  absl::Span<const model::FeatureTap> taps() const override {
    return drafter_->taps();
  }
  int feature_size() const override { return drafter_->feature_size(); }
  int max_depth() const override { return drafter_->max_depth(); }
  absl::StatusOr<std::unique_ptr<model::FeatureSequence>> NewSequence(
      int max_length, int num_slots) override {
    return drafter_->NewSequence(max_length, num_slots);
  }
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const model::FeatureRows> batch) override {
    *now_ns_ -= 10 * ClockReads(batch);
    return drafter_->Forward(batch);
  }

 private:
  model::FeatureDrafter* const drafter_;
  int64_t* const now_ns_;
};

// Likewise.
class TimelessHeads : public model::FutureHeads {
 public:
  TimelessHeads(std::unique_ptr<model::FutureHeads> heads, int64_t* now_ns)
      : heads_(std::move(heads)), now_ns_(now_ns) {}
  int count() const override { return heads_->count(); }
  absl::Span<const float> Run(absl::Span<const float> hidden) override {
    *now_ns_ -= 10;
    return heads_->Run(hidden);
  }

 private:
  const std::unique_ptr<model::FutureHeads> heads_;
  int64_t* const now_ns_;
};

// The tiny Llama of tests/data/model/eagle, and what drafts from it.
class RealEngine {
 public:
  using Drafter = std::unique_ptr<model::FeatureDrafter>;
  using Make = std::function<Drafter(model::LanguageModel* model)>;
  using Heads = std::unique_ptr<model::FutureHeads>;
  using MakeHeads = std::function<Heads(model::LanguageModel* model)>;

  // Of an EAGLE draft that runs elsewhere; an empty folder: there is none.
  struct Published {
    std::string folder;
    int64_t bytes = FeatureShelf::kDefaultBytes;
  };
  // `make` makes the draft; if it is null, the engine has none. The engine
  // publishes to `tensors`; if that is null, it publishes nothing.
  explicit RealEngine(const Make& make,
                      worker::TensorPublisher* tensors = nullptr)
      : RealEngine(make, tensors, Published()) {}
  RealEngine(const Make& make, worker::TensorPublisher* tensors,
             const Published& published,
             const MakeHeads& make_heads = nullptr) {
    kernels::BackendOptions backend;
    backend.kind = NACRE_REAL_BACKEND;
    backend_ = *kernels::CreateBackend(backend);
    auto model =
        model::LoadModel(RealFolder("eagle/target"), backend_.get(),
                         {.kv_cache_bytes = 1 << 20, .prefix_cache = true});
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    TargetEngine::Options options;
    options.model = model_.get();
    options.now_ns = [this] { return now_ns_ += 10; };
    options.suffixes = false;
    options.tensors = tensors;
    options.send = [this](worker::StreamId, TargetEvents events) {
      for (const auto& [id, verdict, logprobs] : events.verdicts) {
        tokens[id].insert(tokens[id].end(), verdict.token_ids.begin(),
                          verdict.token_ids.end());
        finish[id] = verdict.finish;
        accepted += verdict.suffix_accepted;
      }
      for (const auto& opening : events.common.opened) {
        cached_tokens += opening.cached_tokens;
      }
    };
    if (!published.folder.empty()) {
      projection_ =
          *model::EagleProjection::Load(published.folder, model_.get());
      options.feature_source = projection_.get();
      options.feature_bytes = published.bytes;
    }
    if (make != nullptr) {
      drafter_ = make(model_.get());
      timeless_ = std::make_unique<TimelessDrafter>(drafter_.get(), &now_ns_);
      options.feature_drafter = timeless_.get();
    }
    if (make_heads != nullptr) {
      heads_ =
          std::make_unique<TimelessHeads>(make_heads(model_.get()), &now_ns_);
      options.heads = heads_.get();
    }
    engine_ = std::make_unique<TargetEngine>(std::move(options));
    engine_->LearnStepTimes(std::vector<worker::StepTime>{{1, 10}, {512, 11}});
  }

  void Open(OpenTarget open) {
    tokens[open.session_id] = open.token_ids;
    TargetCommands commands;
    commands.stream = 1;
    commands.open.push_back(std::move(open));
    engine_->Push(std::move(commands));
  }

  void RunToEnd(uint64_t id) {
    while (finish[id] == speculation::FinishReason::kNone) {
      TargetCommands commands;
      commands.stream = 1;
      commands.acknowledged.push_back(
          {id, static_cast<int>(tokens[id].size())});
      engine_->Push(std::move(commands));
      const auto outcome = engine_->RunOnce();
      ASSERT_TRUE(outcome.ok()) << outcome.status();
    }
  }

  model::LanguageModel* model() { return model_.get(); }
  model::EagleProjection* projection() { return projection_.get(); }
  TargetEngine* engine() { return engine_.get(); }

  std::map<uint64_t, std::vector<int32_t>> tokens;
  std::map<uint64_t, speculation::FinishReason> finish;
  int accepted = 0;
  int cached_tokens = 0;

 private:
  int64_t now_ns_ = 1000;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<model::LanguageModel> model_;
  std::unique_ptr<model::EagleProjection> projection_;
  Drafter drafter_;
  std::unique_ptr<TimelessHeads> heads_;
  std::unique_ptr<TimelessDrafter> timeless_;
  std::unique_ptr<TargetEngine> engine_;
};

// A prompt of more than two blocks of the KV cache. Two tokens are all that it
// may say, so that a draft that knows nothing is right at times.
inline OpenTarget RealOpen(uint64_t id, float temperature) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 34; ++i) prompt.push_back((7 * i + i * i) % 40);
  OpenTarget open = MakeOpen(id, std::move(prompt), 24);
  open.ignore_eos = true;
  open.suffixes.emplace();
  open.sampling.temperature = temperature;
  open.sampling.seed = 5 + id;
  open.sampling.logit_bias = {{11, 100.0f}, {12, 100.0f}};
  if (id % 2 == 0) open.num_slots = 64;
  return open;
}

// Three sessions of one prompt after each other, two of which begin with what
// the first has left in the prefix cache, the last in the middle of its answer.
// Returns what each says.
inline std::map<uint64_t, std::vector<int32_t>> SayThree(float temperature,
                                                         RealEngine* engine) {
  for (uint64_t id = 1; id <= 3; ++id) {
    OpenTarget open = RealOpen(id, temperature);
    if (id == 3) {
      for (const int32_t token : {11, 12, 11, 12, 11}) {
        open.token_ids.push_back(token);
      }
    }
    engine->Open(std::move(open));
    if (id != 2) engine->RunToEnd(id);
  }
  engine->RunToEnd(2);
  EXPECT_GT(engine->cached_tokens, 0);
  return engine->tokens;
}

}  // namespace nacre::target_worker

#endif  // TESTS_TARGET_WORKER_REAL_ENGINE_H_
