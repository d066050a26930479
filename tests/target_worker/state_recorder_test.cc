#include "target_worker/state_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/json.h"
#include "tests/target_worker/target_fixture.h"

namespace nacre::target_worker {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::json;

class StateRecorderTest : public ::testing::Test {
 protected:
  StateRecorderTest() {
    std::string name = ::testing::TempDir() + "/nacre-states-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  ~StateRecorderTest() override { std::filesystem::remove_all(dir_); }

  std::unique_ptr<worker::FeatureFile> Open(int hidden_size) {
    auto file = worker::FeatureFile::Open(dir_ + "/lines");
    EXPECT_TRUE(file.ok()) << file.status();
    const absl::Status added =
        (*file)->AddHidden(dir_ + "/hidden", hidden_size);
    EXPECT_TRUE(added.ok()) << added;
    return *std::move(file);
  }

  std::vector<Json> Lines() const {
    std::vector<Json> lines;
    std::ifstream stream(dir_ + "/lines");
    for (std::string line; std::getline(stream, line);) {
      lines.push_back(Json::parse(line, nullptr, false));
      EXPECT_TRUE(lines.back().is_object()) << line;
    }
    return lines;
  }

  // All states, after the file was closed.
  std::vector<float> States() const {
    std::ifstream stream(dir_ + "/hidden", std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(stream)),
                            std::istreambuf_iterator<char>());
    std::vector<float> values((bytes.size() - worker::kHiddenHeaderBytes) /
                              sizeof(float));
    std::memcpy(values.data(), &bytes[worker::kHiddenHeaderBytes],
                values.size() * sizeof(float));
    return values;
  }

  std::string dir_;
};

TEST_F(StateRecorderTest, ALineForEachTokenRefersToItsState) {
  {
    const auto file = Open(2);
    const std::string id = "ask \"1\"";
    RecordStates({id, 7, 3, 2, {1.0f, 2.0f, 3.0f, 4.0f}}, file.get());
    RecordStates({id, 7, 5, 0, {}}, file.get());
    RecordStates({id, 7, 5, 1, {5.0f, 6.0f}}, file.get());
  }
  const std::vector<Json> lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const Json& line = lines[static_cast<size_t>(i)];
    EXPECT_EQ(line["request"], "ask \"1\"");
    EXPECT_EQ(line["session"], 7);
    EXPECT_EQ(line["position"], 3 + i);
    EXPECT_EQ(line["state"], i);
  }
  EXPECT_THAT(States(), ElementsAre(1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f));
}

// In the engine: of each token of each answer the state of its own row, as a
// forward of the tokens before it alone gives it, and the tokens are those of
// an engine that records nothing.
TEST_F(StateRecorderTest, TheEngineRecordsTheRowsOfCommittedTokens) {
  nacre::testing::TableModelOptions shows;
  shows.shows_hidden = true;
  std::map<uint64_t, std::vector<int32_t>> tokens;
  const nacre::testing::TableModel model(shows);
  {
    const auto file = Open(model.info().hidden_size);
    TargetFixture fixture(shows, {}, nullptr, file.get());
    for (uint64_t id = 1; id <= 3; ++id) {
      OpenTarget open = MakeOpen(id, Prompt(3 + static_cast<int>(id), id), 12);
      open.request_id = "r" + std::to_string(id);
      const std::vector<int32_t> truth = Autoregressive(model, open);
      fixture.Open(open);
      // Two tokens right, the third wrong.
      speculation::Tail tail;
      tail.epoch = open.epoch;
      tail.base_length = tail.first_position = open.prompt_length;
      const auto first =
          truth.begin() + static_cast<std::ptrdiff_t>(open.prompt_length);
      tail.token_ids = {first[0], first[1], (first[2] + 1) % 16};
      TargetCommands commands;
      commands.stream = 1;
      commands.tails.push_back({id, tail});
      fixture.engine->Push(std::move(commands));
      fixture.RunToEnd(id);
      EXPECT_EQ(fixture.tokens[id], truth);
    }
    tokens = fixture.tokens;
  }
  const std::vector<float> states = States();
  const auto size = static_cast<size_t>(model.info().hidden_size);
  std::map<uint64_t, int> recorded;
  for (const Json& line : Lines()) {
    const uint64_t id = line["session"];
    EXPECT_EQ(line["request"], "r" + std::to_string(id));
    EXPECT_EQ(line["position"], recorded[id]) << "each once, in order";
    ++recorded[id];
    const size_t prompt_length = 3 + id;
    const auto before =
        absl::MakeConstSpan(tokens[id])
            .first(prompt_length + line["position"].get<size_t>());
    EXPECT_EQ(std::vector<float>(
                  states.begin() + line["state"].get<std::ptrdiff_t>() *
                                       static_cast<std::ptrdiff_t>(size),
                  states.begin() + (line["state"].get<std::ptrdiff_t>() + 1) *
                                       static_cast<std::ptrdiff_t>(size)),
              model.Logits(before));
  }
  for (uint64_t id = 1; id <= 3; ++id) {
    EXPECT_EQ(static_cast<size_t>(recorded[id]), tokens[id].size() - 3 - id);
  }
}

}  // namespace
}  // namespace nacre::target_worker
