// A draft on the cuda backend grows trees: its candidates are those that the
// reference ranks behind the same text, and a chain beside it is drawn on the
// device. On the emulated device.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/draft_worker/draft_fixture.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::draft_worker {
namespace {

using speculation::Tail;
using Ids = std::vector<int32_t>;

struct Loaded {
  Loaded(const std::string& kind, const std::string& folder) {
    kernels::BackendOptions options;
    options.kind = kind;
    options.weights = "f32";
    options.kv_type = "f32";
    backend = *kernels::CreateBackend(options);
    model = *model::LoadModel(folder, backend.get(), {4 << 20, {}});
  }
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<model::LanguageModel> model;
};

OpenDraft Open(uint64_t id, Ids prompt, int num_slots) {
  OpenDraft open = MakeOpen(id, std::move(prompt), /*lead=*/4);
  open.sampling.repetition_penalty = 1.0f;  // else a device cannot draw
  open.plan.rows = num_slots > 0 ? 4 : 1;
  open.plan.least_score = -8;
  open.num_slots = num_slots;
  return open;
}

class CudaTreesTest : public ::testing::Test {
 protected:
  CudaTreesTest() {
    DraftEngine::Options options;
    options.model = cuda_.model.get();
    options.now_ns = [this] { return now_ns_ += 10; };
    options.send = [this](worker::StreamId, const DraftEvents& events) {
      EXPECT_TRUE(events.common.failures.empty());
      for (const auto& [id, tail] : events.tails) tails_[id].push_back(tail);
    };
    engine_ = std::make_unique<DraftEngine>(std::move(options));
  }

  static std::string Folder() {
    const std::string folder = nacre::testing::TestFolder("cuda_trees");
    nacre::testing::WriteTinyCheckpoint({}, folder);
    return folder;
  }

  void Push(DraftCommands commands) {
    commands.stream = 1;
    engine_->Push(std::move(commands));
    while (true) {
      const auto outcome = engine_->RunOnce();
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      if (!outcome->stepped) return;
    }
  }

  // The reference's candidates behind `text`, the best first.
  Ids Ranked(const OpenDraft& open, const Ids& text) {
    const auto sequence = *reference_.model->NewSequence(100);
    const auto logits = reference_.model->Forward({{sequence.get(), text, 1}});
    EXPECT_TRUE(logits.ok()) << logits.status();
    model::Sampler sampler(open.sampling, reference_.model->info().vocab_size);
    std::vector<model::ScoredToken> best(speculation::kRanks);
    const int count = sampler.Rank(*logits, static_cast<int>(text.size()),
                                   model::TokenHistory(open.prompt_length),
                                   absl::MakeSpan(best));
    Ids ids;
    for (int i = 0; i < count; ++i) ids.push_back(best[i].token_id);
    return ids;
  }

  // Nodes of the messages that came since the last call, behind `text`; each is
  // the next best of its siblings. Returns how many are no first child.
  int CheckTails(const OpenDraft& open, const Ids& text) {
    int branches = 0;
    std::map<int, int> children;  // of a node, by its number
    for (const Tail& tail : std::exchange(tails_[open.session_id], {})) {
      if (tail.token_ids.empty()) continue;
      EXPECT_TRUE(tail.is_tree());
      for (size_t i = 0; i < tail.parents.size(); ++i) {
        const int parent = tail.parents[i];
        const Ids& before = parent == 0 ? text : texts_.at(parent);
        const Ids ranked = Ranked(open, before);
        const int place = children[parent]++;
        EXPECT_EQ(tail.token_ids[i], ranked.at(static_cast<size_t>(place)));
        texts_[tail.first_node + static_cast<int>(i)] =
            Joined(before, {tail.token_ids[i]});
        branches += place > 0 ? 1 : 0;
      }
    }
    return branches;
  }

  const std::string folder_ = Folder();
  Loaded cuda_{"cuda", folder_};
  Loaded reference_{"reference", folder_};
  int64_t now_ns_ = 1000;
  std::map<uint64_t, std::vector<Tail>> tails_;
  std::map<int, Ids> texts_;  // that nodes stand for, by number
  std::unique_ptr<DraftEngine> engine_;
};

TEST_F(CudaTreesTest, RanksAsTheReferenceDoesAlsoBehindABranch) {
  ASSERT_TRUE(cuda_.model->draws_tokens());
  const OpenDraft tree = Open(1, {3, 1, 4, 1, 5}, /*num_slots=*/32);
  const OpenDraft chain = Open(2, {9, 2, 6}, /*num_slots=*/0);
  DraftCommands open;
  open.open = {tree, chain};
  Push(std::move(open));
  EXPECT_GT(CheckTails(tree, tree.token_ids), 8);
  Ids drafted = chain.token_ids;
  for (const Tail& tail : tails_[2]) {
    for (const int32_t id : tail.token_ids) {
      EXPECT_EQ(id, Ranked(chain, drafted).front());
      drafted.push_back(id);
    }
  }
  EXPECT_EQ(drafted.size(), chain.token_ids.size() + 4);

  // The text goes on along the second choice.
  const int32_t second = Ranked(tree, tree.token_ids)[1];
  DraftCommands commit;
  commit.commits.push_back({1, {5, {second}}});
  Push(std::move(commit));
  EXPECT_GT(CheckTails(tree, Joined(tree.token_ids, {second})), 0);
}

}  // namespace
}  // namespace nacre::draft_worker
