// How many steps of sessions that come, grow and go find their graph
// (kernels/cuda/step_graphs.h), and that what steps are given for that changes
// no bit. On the emulated device.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

namespace emulation = kernels::cuda::emulation;
using Logits = std::vector<float>;

constexpr int kVocab = 101;
constexpr int kSlots = 16;
constexpr int kChunk = 128;  // rows of prompts beside decoding, a worker's

// What an engine has to do.
struct Load {
  std::string name;
  int sessions = 1;    // at once, at most
  int least_rows = 1;  // of a session's step
  int most_rows = 1;   // likewise
  double ready = 1;    // share of the sessions that are in a step
  bool trees = false;  // rows but the first are nodes
  int prompt = 200;    // tokens, at most; a quarter of it at least
  int answer = 300;    // likewise
  // Shares of the steps of 64 rows or fewer, in percent.
  double least_replayed = 0;
  int steps = 1200;
};

struct Session {
  std::unique_ptr<Sequence> sequence;
  int prompt = 0;
  int end = 0;
  bool decodes = false;  // in this step
  int before = 0;        // its length before this step
  std::vector<int32_t> fed;
  std::vector<TreeNode> nodes;
};

// Sessions of one model, as engines have them. Which there are and what they
// feed follows from the seed alone.
class Engine {
 public:
  Engine(const std::string& dir, const Load& load, bool graphs)
      : load_(load), random_(3) {
    kernels::BackendOptions options;
    options.kind = "cuda";
    options.kv_type = "bf16";
    options.graphs = graphs;
    backend_ = *kernels::CreateBackend(options);
    constexpr int kTokenBytes = 256;
    const int tokens = load.sessions * (load.prompt + load.answer + 64);
    model_ = *LoadModel(
        dir, backend_.get(),
        {.kv_cache_bytes = tokens * kTokenBytes, .step_rows = 2 * kChunk});
  }

  // The logits of its rows.
  Logits Step() {
    Come();
    std::vector<SequenceRows> batch;
    std::vector<Session*> stepping;
    int prompt_rows = kChunk;
    for (Session& session : sessions_) {
      if (!Feed(&session, &prompt_rows)) continue;
      const int rows = static_cast<int>(session.fed.size());
      batch.push_back({.sequence = session.sequence.get(),
                       .token_ids = session.fed,
                       .num_logits = session.decodes ? rows : 1,
                       .nodes = session.nodes});
      stepping.push_back(&session);
    }
    const auto logits = model_->Forward(batch);
    EXPECT_TRUE(logits.ok()) << logits.status();
    for (Session* session : stepping) Keep(session);
    std::erase_if(sessions_, [](const Session& session) {
      return session.sequence->length() >= session.end;
    });
    return Logits(logits->begin(), logits->end());
  }

  kernels::GraphCounts counts() const { return backend_->graph_counts(); }

 private:
  int Below(int count) {
    return static_cast<int>(random_() % static_cast<unsigned>(count));
  }
  int Length(int most) { return most / 4 + Below(most * 3 / 4); }

  void Come() {
    const int count = static_cast<int>(sessions_.size());
    if (count == load_.sessions || (count > 0 && Below(20) > 0)) return;
    Session session;
    session.prompt = Length(load_.prompt);
    session.end = session.prompt + Length(load_.answer);
    session.sequence = *model_->NewTreeSequence(session.end + load_.most_rows,
                                                load_.trees ? kSlots : 0, {});
    sessions_.push_back(std::move(session));
  }

  // False: it is not in this step.
  bool Feed(Session* session, int* prompt_rows) {
    session->before = session->sequence->length();
    session->nodes.clear();
    const int unfed = session->prompt - 1 - session->before;
    session->decodes = unfed <= 0;
    int rows = std::min(unfed, *prompt_rows);
    if (session->decodes) {
      if (Below(1000) >= 1000 * load_.ready) return false;
      rows = load_.least_rows + Below(load_.most_rows - load_.least_rows + 1);
      for (int i = 1; load_.trees && i < rows; ++i) AddNode(session, Below(i));
    } else {
      *prompt_rows -= rows;
    }
    session->fed.clear();
    for (int i = 0; i < rows; ++i) session->fed.push_back(Below(kVocab));
    return rows > 0;
  }

  // Below row `parent`, of which the first is at a position.
  void AddNode(Session* session, int parent) {
    TreeNode node = {static_cast<int32_t>(session->nodes.size()), kNoSlot,
                     session->before + 1};
    if (parent > 0) {
      node.parent = parent - 1;
      node.position = session->nodes[node.parent].position + 1;
    }
    session->nodes.push_back(node);
  }

  // Some of what it fed was right.
  void Keep(Session* session) {
    if (!session->decodes) return;
    const int rows = static_cast<int>(session->fed.size());
    session->sequence->Truncate(session->before + 1 +
                                (load_.trees ? 0 : Below(rows)));
  }

  const Load load_;
  std::mt19937 random_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<LanguageModel> model_;
  std::vector<Session> sessions_;
};

class CudaGraphsTest : public ::testing::Test {
 protected:
  CudaGraphsTest() {
    emulation::ResetDevice();
    nacre::testing::WriteTinyCheckpoint({.hidden_size = 48,
                                         .intermediate_size = 72,
                                         .num_hidden_layers = 2,
                                         .num_attention_heads = 8,
                                         .num_key_value_heads = 2,
                                         .head_dim = 16,
                                         .vocab_size = kVocab,
                                         .max_position_embeddings = 4096,
                                         .dtype = kernels::DType::kBF16},
                                        dir_);
  }
  ~CudaGraphsTest() override { emulation::ResetDevice(); }

  const std::string dir_ = nacre::testing::TestFolder("cuda_graphs");
};

// Only what is queued counts: nothing is computed.
TEST_F(CudaGraphsTest, MostStepsFindTheirGraph) {
  emulation::settings.idle = true;
  const Load loads[] = {
      {"1 draft, long", 1, 1, 1, 1, false, 200, 3000, 98},
      {"8 drafts", 8, 1, 1, 1, false, 200, 300, 96},
      {"16 drafts, half", 16, 1, 1, 0.5, false, 200, 300, 95},
      {"1 chain", 1, 1, 8, 1, false, 200, 300, 95},
      {"4 chains", 4, 1, 6, 1, false, 200, 300, 89},
      {"4 chains, half", 4, 1, 6, 0.5, false, 200, 300, 89},
      {"16 chains", 16, 1, 5, 1, false, 200, 300, 89},
      {"16 chains, half", 16, 1, 5, 0.5, false, 200, 300, 87},
      {"16 long chains, half", 16, 1, 5, 0.5, false, 1500, 1500, 77},
      {"1 tree", 1, 4, 16, 1, true, 200, 300, 95},
      {"4 trees", 4, 4, 16, 1, true, 200, 300, 91},
  };
  for (const Load& load : loads) {
    Engine engine(dir_, load, /*graphs=*/true);
    for (int i = 0; i < load.steps; ++i) engine.Step();
    const kernels::GraphCounts counts = engine.counts();
    const auto all =
        static_cast<double>(counts.replayed + counts.captured + counts.plain);
    const double replayed = 100 * static_cast<double>(counts.replayed) / all;
    std::printf("%-30s %5.0f steps: %5.1f %% replayed, %4.1f %% captured\n",
                load.name.c_str(), all, replayed,
                100 * static_cast<double>(counts.captured) / all);
    EXPECT_GE(replayed, load.least_replayed) << load.name;
  }
}

// A step that fills up rows, tiles, splits and queries has the same bits.
TEST_F(CudaGraphsTest, WhatStepsAreGivenForGraphsChangesNoBit) {
  for (const bool trees : {false, true}) {
    const Load load = {"", 4, 1, 6, 0.8, trees, 160, 40};
    Engine with(dir_, load, /*graphs=*/true);
    Engine without(dir_, load, /*graphs=*/false);
    for (int i = 0; i < 40; ++i) {
      const Logits logits = with.Step();
      const Logits truth = without.Step();
      ASSERT_EQ(logits.size(), truth.size());
      ASSERT_EQ(std::memcmp(logits.data(), truth.data(),
                            truth.size() * sizeof(float)),
                0)
          << i;
    }
    EXPECT_GT(with.counts().replayed, 5u);
    EXPECT_EQ(without.counts(), kernels::GraphCounts());
  }
}

}  // namespace
}  // namespace nacre::model
