// Hidden states that the target engine publishes: which row, as what, and when
// none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/target_worker/target_fixture.h"

namespace nacre::target_worker {
namespace {

class FakePublisher final : public worker::TensorPublisher {
 public:
  bool HasReaders(uint64_t channel) const override {
    return readers.count(channel) > 0;
  }
  void Publish(const worker::Tensor& tensor) override {
    EXPECT_TRUE(HasReaders(tensor.tag.channel)) << "made for nobody";
    published.push_back(tensor.OnHost());
  }
  std::set<uint64_t> readers;
  std::vector<worker::Tensor> published;
};

// Counts what the engine asks of it.
class CountingModel final : public nacre::testing::TableModel {
 public:
  using TableModel::TableModel;
  kernels::FloatView final_hidden() override {
    ++num_asked;
    return TableModel::final_hidden();
  }
  int num_asked = 0;
};

nacre::testing::TableModelOptions ShowsHidden() {
  nacre::testing::TableModelOptions options;
  options.shows_hidden = true;
  return options;
}

OpenTarget WithChannel(uint64_t id, int prompt_length, int max_tokens) {
  OpenTarget open = MakeOpen(id, Prompt(prompt_length, id), max_tokens);
  open.hidden_channel = 100 + id;
  open.epoch = static_cast<uint32_t>(id);
  open.sampling.temperature = 0.8f;
  open.sampling.seed = id;
  return open;
}

// The state is that of a forward of the session's tokens alone up to the
// position that it names: the one before its newest token.
void ExpectStateOf(const TargetFixture& fixture, const worker::Tensor& tensor,
                   uint64_t id, int committed_length) {
  const std::vector<int32_t>& tokens = fixture.tokens.at(id);
  EXPECT_EQ(tensor.tag.position, committed_length - 2);
  EXPECT_EQ(tensor.tag.layer, 0);
  EXPECT_TRUE(tensor.tag.after_norm);
  EXPECT_EQ(tensor.shape, std::vector<int>{16});
  EXPECT_EQ(tensor.values.host(),
            fixture.model.Logits(absl::MakeConstSpan(tokens).first(
                static_cast<size_t>(tensor.tag.position) + 1)));
}

// Many sessions in each step, some of them with prompts still to be read, with
// tails right, wrong and absent. `draws`: the model draws for all but one.
void ExpectTheirOwnStates(bool draws) {
  FakePublisher publisher;
  publisher.readers = {101, 102, 104};
  nacre::testing::TableModelOptions model_options = ShowsHidden();
  model_options.draws_tokens = draws;
  TargetFixture fixture(model_options, {.max_rows = 24, .prefill_chunk = 8},
                        &publisher);
  std::map<uint64_t, std::vector<int32_t>> truth;
  for (uint64_t id = 1; id <= 5; ++id) {
    OpenTarget open = WithChannel(id, 3 + 9 * static_cast<int>(id % 3), 60);
    if (id == 5) open.hidden_channel = 0;
    if (id == 2) open.sampling.top_k = 5;
    open.has_draft = id != 4;
    open.plan.window = 5;
    truth[id] = Autoregressive(fixture.model, open);
    fixture.Open(open);
  }
  std::mt19937_64 random(5);
  std::map<uint64_t, int> published;  // by session
  bool done = false;
  while (!done) {
    TargetCommands commands;
    commands.stream = 1;
    for (uint64_t id = 1; id <= 5; ++id) {
      commands.acknowledged.push_back(
          {id, static_cast<int>(fixture.tokens[id].size())});
      if (id == 4 || random() % 3 == 0) continue;
      speculation::Tail tail;
      tail.epoch = static_cast<uint32_t>(id);
      tail.base_length = tail.first_position =
          static_cast<int>(fixture.tokens[id].size());
      for (size_t i = fixture.tokens[id].size();
           i < truth[id].size() && tail.token_ids.size() < 5; ++i) {
        const bool right = random() % 4 != 0;
        tail.token_ids.push_back(right ? truth[id][i]
                                       : (truth[id][i] + 1) % 16);
      }
      commands.tails.push_back({id, tail});
    }
    fixture.engine->Push(std::move(commands));
    std::map<uint64_t, int> verdicts;
    const size_t num_published = publisher.published.size();
    std::map<uint64_t, size_t> before;
    for (auto& [id, tokens] : fixture.tokens) before[id] = tokens.size();
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
    for (size_t i = num_published; i < publisher.published.size(); ++i) {
      const worker::Tensor& tensor = publisher.published[i];
      const uint64_t id = tensor.tag.channel - 100;
      EXPECT_EQ(tensor.tag.epoch, id);
      ExpectStateOf(fixture, tensor, id,
                    static_cast<int>(fixture.tokens[id].size()));
      ++published[id];
      ++verdicts[id];
    }
    done = true;
    for (uint64_t id = 1; id <= 5; ++id) {
      const bool ended = fixture.finish[id] != speculation::FinishReason::kNone;
      done = done && ended;
      // One for each verdict but the last.
      const bool expected = publisher.HasReaders(100 + id) && !ended &&
                            fixture.tokens[id].size() > before[id];
      EXPECT_EQ(verdicts[id], expected ? 1 : 0) << id;
    }
  }
  for (uint64_t id = 1; id <= 5; ++id) {
    EXPECT_EQ(fixture.tokens[id], truth[id]);
    EXPECT_EQ(published[id] > 0, publisher.HasReaders(100 + id)) << id;
  }
  EXPECT_EQ(fixture.model.num_draws() > 0, draws);
}

TEST(TargetEngineHidden, TheStateIsThatBeforeTheLastCommittedToken) {
  ExpectTheirOwnStates(/*draws=*/false);
}

TEST(TargetEngineHidden, ItIsSoWhereTheModelDraws) {
  ExpectTheirOwnStates(/*draws=*/true);
}

// Under the ratio test a step may end after others have run: the state is still
// that of its own row.
TEST(TargetEngineHidden, AHeldStepPublishesItsOwnRow) {
  FakePublisher publisher;
  publisher.readers = {101};
  TargetFixture fixture(ShowsHidden(), {}, &publisher);
  OpenTarget open = WithChannel(1, 3, 40);
  open.has_draft = true;
  open.plan = {0, 2, 2, int64_t{1} << 50, /*holds_last_row=*/true};
  open.verification = speculation::Verification::kRatio;
  fixture.Open(open);
  fixture.Drain();
  OpenTarget other = MakeOpen(9, {5, 5, 2, 8}, 6);
  fixture.Open(other);
  fixture.RunToEnd(9);
  EXPECT_TRUE(publisher.published.empty()) << "the step is held";
  speculation::Tail tail;
  tail.epoch = 1;
  tail.base_length = tail.first_position = 3;
  tail.token_ids = {4};
  tail.distributions = {{{4}, {1.0f}}};
  TargetCommands commands;
  commands.stream = 1;
  commands.tails.push_back({1, tail});
  fixture.engine->Push(std::move(commands));
  fixture.Drain();
  ASSERT_EQ(fixture.tokens[1].size(), 4u);
  ASSERT_EQ(publisher.published.size(), 1u);
  ExpectStateOf(fixture, publisher.published[0], 1, 4);
}

// What a step accepted is told before its last row is judged, and either comes
// with the state of its own row.
TEST(TargetEngineHidden, BothPartsOfAHeldStepPublish) {
  FakePublisher publisher;
  publisher.readers = {101};
  TargetFixture fixture(ShowsHidden(), {}, &publisher);
  OpenTarget open = WithChannel(1, 3, 40);
  open.has_draft = true;
  open.plan = {2, 2, 2, int64_t{1} << 50, /*holds_last_row=*/true};
  open.verification = speculation::Verification::kRatio;
  fixture.Open(open);
  const auto send = [&](int base_length, int position, int32_t token_id) {
    speculation::Tail tail;
    tail.epoch = 1;
    tail.base_length = base_length;
    tail.first_position = position;
    tail.token_ids = {token_id};
    // Any target draws it at least as often: it is accepted.
    tail.distributions = {{{token_id, token_id + 1000}, {1e-30f, 1.0f}}};
    TargetCommands commands;
    commands.stream = 1;
    commands.tails.push_back({1, tail});
    fixture.engine->Push(std::move(commands));
  };
  send(3, 3, 4);
  send(3, 4, 6);
  fixture.Drain();
  ASSERT_EQ(fixture.tokens[1].size(), 5u);
  ASSERT_EQ(publisher.published.size(), 1u);
  ExpectStateOf(fixture, publisher.published[0], 1, 5);
  send(5, 5, 2);
  fixture.Drain();
  ASSERT_EQ(fixture.tokens[1].size(), 6u);
  ASSERT_EQ(publisher.published.size(), 2u);
  ExpectStateOf(fixture, publisher.published[1], 1, 6);
}

TEST(TargetEngineHidden, AnotherDraftReadsThemUnderItsEpoch) {
  FakePublisher publisher;
  publisher.readers = {101};
  TargetFixture fixture(ShowsHidden(), {}, &publisher);
  fixture.Open(WithChannel(1, 4, 60));
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  for (const uint32_t epoch : {6u, 2u}) {  // an old one changes nothing
    TargetCommands commands;
    commands.stream = 1;
    commands.draft_lost.push_back(1);
    commands.draft_attached.push_back({1, epoch, 5});
    fixture.engine->Push(std::move(commands));
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
  }
  ASSERT_EQ(publisher.published.size(), 3u);
  EXPECT_EQ(publisher.published[0].tag.epoch, 1u);
  EXPECT_EQ(publisher.published[1].tag.epoch, 6u);
  EXPECT_EQ(publisher.published[2].tag.epoch, 6u);
}

// What is not read costs nothing; whether it is read changes no token.
TEST(TargetEngineHidden, OnlyWhatIsReadIsCopied) {
  for (const bool is_read : {false, true}) {
    FakePublisher publisher;
    if (is_read) publisher.readers = {101};
    CountingModel model(ShowsHidden());
    std::vector<int32_t> tokens;
    TargetEngine::Options options;
    options.model = &model;
    options.tensors = &publisher;
    options.send = [&](worker::StreamId, const TargetEvents& events) {
      for (const auto& verdict : events.verdicts) {
        tokens.insert(tokens.end(), verdict.verdict.token_ids.begin(),
                      verdict.verdict.token_ids.end());
      }
    };
    TargetEngine engine(std::move(options));
    TargetCommands commands;
    commands.stream = 1;
    OpenTarget open = WithChannel(1, 4, 20);
    OpenTarget without = WithChannel(2, 4, 20);
    without.hidden_channel = 0;
    const std::vector<int32_t> truth = Autoregressive(model, open);
    commands.open = {open};
    engine.Push(commands);
    while (tokens.size() < 20) ASSERT_TRUE(engine.RunOnce().ok());
    EXPECT_EQ(tokens, (std::vector<int32_t>(truth.begin() + 4, truth.end())));
    EXPECT_EQ(model.num_asked, is_read ? 19 : 0);
    EXPECT_EQ(publisher.published.size(), is_read ? 19u : 0u);
    commands.open = {without};
    engine.Push(commands);
    tokens.clear();
    while (tokens.size() < 20) ASSERT_TRUE(engine.RunOnce().ok());
    EXPECT_EQ(model.num_asked, is_read ? 19 : 0);
  }
}

TEST(TargetEngineHidden, AModelThatShowsNonePublishesNone) {
  FakePublisher publisher;
  publisher.readers = {101};
  TargetFixture fixture({}, {}, &publisher);
  fixture.Open(WithChannel(1, 4, 20));
  fixture.RunToEnd(1);
  EXPECT_TRUE(publisher.published.empty());
}

}  // namespace
}  // namespace nacre::target_worker
