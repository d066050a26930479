#include "draft_worker/feature_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/json.h"
#include "model/distribution.h"
#include "tests/draft_worker/draft_fixture.h"

namespace nacre::draft_worker {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FeatureRecorderTest : public ::testing::Test {
 protected:
  FeatureRecorderTest() {
    std::string name = ::testing::TempDir() + "/nacre-features-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
    auto file = worker::FeatureFile::Open(path());
    EXPECT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
  }
  ~FeatureRecorderTest() override { std::filesystem::remove_all(dir_); }

  std::string path() const { return dir_ + "/rows.jsonl"; }

  // What the file holds now.
  std::vector<Json> Lines() const {
    std::vector<Json> lines;
    std::ifstream stream(path());
    for (std::string line; std::getline(stream, line);) {
      lines.push_back(Json::parse(line, nullptr, false));
      EXPECT_TRUE(lines.back().is_object()) << line;
    }
    return lines;
  }
  std::vector<bool> Outcomes() const {
    std::vector<bool> outcomes;
    for (const Json& line : Lines()) outcomes.push_back(line["accepted"]);
    return outcomes;
  }

  std::string dir_;
  std::unique_ptr<worker::FeatureFile> file_;
};

TEST_F(FeatureRecorderTest, ALineSaysWhatTheRowSaid) {
  SessionFeatures session({file_.get(), "ask \"1\"\n\xff", 7, 3, 12});
  // 12 ids of e^0 to e^-11, and a padded one that must not count.
  std::vector<float> logits;
  for (int i = 0; i < 12; ++i) logits.push_back(static_cast<float>(-i));
  logits.push_back(50.0f);
  session.OnDrafted(/*position=*/5, /*token_id=*/1, logits, {});
  EXPECT_TRUE(Lines().empty());
  session.OnCommit({.accepted = 1});
  const std::vector<Json> lines = Lines();
  ASSERT_EQ(lines.size(), 1u);
  const Json& line = lines[0];
  EXPECT_EQ(line["request"], "ask \"1\"\n\xef\xbf\xbd");
  EXPECT_EQ(line["session"], 7);
  EXPECT_EQ(line["position"], 2);
  EXPECT_EQ(line["token"], 1);
  EXPECT_EQ(line["accepted"], true);
  EXPECT_FALSE(line.contains("row"));
  double z = 0.0;
  double entropy = 0.0;
  for (int i = 0; i < 12; ++i) z += std::exp(-i);
  for (int i = 0; i < 12; ++i) {
    entropy += std::exp(-i) / z * (std::log(z) + i);
  }
  ASSERT_EQ(line["top"].size(), 10u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_NEAR(line["top"][i], std::exp(-i) / z, 1e-6);
  }
  EXPECT_NEAR(line["entropy"], entropy, 1e-5);
  EXPECT_NEAR(line["probability"], std::exp(-1) / z, 1e-6);
}

// No digit is lost on the way through the text.
TEST_F(FeatureRecorderTest, NumbersComeBackBitForBit) {
  SessionFeatures session({file_.get(), "r", 1, 0, 3});
  const std::vector<float> logits = {0.1f, -7.3f, 0.3333f};
  session.OnDrafted(0, 2, logits, {});
  session.OnCommit({.rejected = true});
  const Json line = Lines().at(0);
  const model::Distribution row(logits);
  EXPECT_EQ(line["entropy"].get<float>(), static_cast<float>(row.entropy()));
  EXPECT_EQ(line["probability"].get<float>(),
            static_cast<float>(row.Probability(2)));
  EXPECT_EQ(line["accepted"], false);
}

TEST_F(FeatureRecorderTest, UnverifiedTokensAreForgotten) {
  SessionFeatures session({file_.get(), "r", 1, 0, 2});
  const std::vector<float> logits = {1.0f, 0.0f};
  for (int i = 0; i < 5; ++i) session.OnDrafted(i, 0, logits, {});
  session.OnCommit({.accepted = 1});
  session.OnCommit({.accepted = 1, .rejected = true});
  EXPECT_THAT(Outcomes(), ElementsAre(true, true, false));
  // Of what is drafted after the rejection the first comes next.
  session.OnDrafted(3, 0, logits, {});
  session.OnCommit({.accepted = 1, .overtaken = true});
  EXPECT_THAT(Outcomes(), ElementsAre(true, true, false, true));
  EXPECT_EQ(Lines().back()["position"], 3);
  // How far each was drafted ahead.
  EXPECT_EQ(Lines()[0]["unverified"], 0);
  EXPECT_EQ(Lines()[2]["unverified"], 2);
  EXPECT_EQ(Lines()[3]["unverified"], 0);
  session.OnCommit({});
  EXPECT_EQ(Lines().size(), 4u);
}

// The verdict that ends an answer never comes.
TEST_F(FeatureRecorderTest, ATokenWithoutVerdictHasNoOutcome) {
  SessionFeatures session({file_.get(), "r", 1, 0, 2});
  const std::vector<float> logits = {1.0f, 0.0f};
  for (int i = 0; i < 3; ++i) session.OnDrafted(i, 1, logits, {});
  session.OnCommit({.accepted = 1});
  session.OnClosed();
  const std::vector<Json> lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["accepted"], true);
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_TRUE(lines[i]["accepted"].is_null());
    EXPECT_EQ(lines[i]["position"], i);
    EXPECT_EQ(lines[i]["token"], 1);
  }
  session.OnClosed();
  EXPECT_EQ(Lines().size(), 3u);
}

// Each state is written once: as that of the row that drew a token, and as that
// of the row which was fed the token before.
TEST_F(FeatureRecorderTest, LinesReferToHiddenStates) {
  const std::string states = dir_ + "/states";
  ASSERT_TRUE(file_->AddHidden(states, 2).ok());
  SessionFeatures session({file_.get(), "r", 1, 0, 2});
  ASSERT_TRUE(session.needs_hidden());
  const std::vector<float> logits = {1.0f, 0.0f};
  const auto draft = [&](int position, float value) {
    session.OnDrafted(position, 0, logits, {value, -value});
  };
  for (int i = 0; i < 4; ++i) draft(i, static_cast<float>(i));
  session.OnCommit({.accepted = 1});
  // The state of the token after a rejected one was computed from it.
  session.OnCommit({.accepted = 0, .rejected = true});
  draft(2, 9.0f);
  session.OnCommit({.accepted = 1, .overtaken = true});
  const std::vector<Json> lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  std::ifstream stream(states, std::ios::binary);
  stream.seekg(worker::kHiddenHeaderBytes);
  std::vector<float> values;
  for (float value = 0.0f;
       stream.read(reinterpret_cast<char*>(&value), sizeof(value));) {
    values.push_back(value);
  }
  EXPECT_THAT(values,
              ElementsAre(0.0f, -0.0f, 1.0f, -1.0f, 2.0f, -2.0f, 9.0f, -9.0f));
  EXPECT_EQ(lines[0]["row"], 0);
  EXPECT_EQ(lines[0]["fed"], 1);
  EXPECT_EQ(lines[1]["row"], 1);
  EXPECT_EQ(lines[1]["fed"], 2);
  EXPECT_EQ(lines[2]["row"], 3);
  EXPECT_FALSE(lines[2].contains("fed"));
}

TEST(SessionFeatures, AFullDiskLosesLinesAndNothingElse) {
  auto file = worker::FeatureFile::Open("/dev/full");
  ASSERT_TRUE(file.ok()) << file.status();
  SessionFeatures session({file->get(), "r", 1, 0, 2});
  const std::vector<float> logits = {1.0f, 0.0f};
  for (int i = 0; i < 4; ++i) session.OnDrafted(i, 0, logits, {});
  session.OnCommit({.accepted = 2});
  EXPECT_EQ((*file)->lost_lines(), 2u);
  session.OnCommit({.accepted = 1, .rejected = true});
  EXPECT_EQ((*file)->lost_lines(), 4u);
}

// In the engine: what is recorded is what was drafted and verified, in order,
// and recording changes no token.
TEST_F(FeatureRecorderTest, TheEngineRecordsVerifiedTokens) {
  DraftFixture fixture({}, {}, nullptr, file_.get());
  EXPECT_FALSE(fixture.engine->grows_trees());
  OpenDraft open = MakeOpen(9, {3, 4, 5}, 6);
  open.request_id = "q";
  fixture.Open(open);
  fixture.Drain();
  const std::vector<int32_t> drafted = fixture.TakeDrafted(9);
  EXPECT_EQ(drafted, Continue(fixture.model, open, {3, 4, 5}, 6));
  EXPECT_TRUE(Lines().empty());
  // Two right, the third wrong, the rest unverified.
  fixture.Commit(9, 3, {drafted[0], drafted[1], (drafted[2] + 1) % 16});
  fixture.Drain();
  ASSERT_THAT(Outcomes(), ElementsAre(true, true, false));
  std::vector<int32_t> tokens = {3, 4, 5};
  for (int i = 0; i < 3; ++i) {
    const Json line = Lines()[static_cast<size_t>(i)];
    const std::vector<float> logits = fixture.model.Logits(tokens);
    const model::Distribution row(logits);
    EXPECT_EQ(line["request"], "q");
    EXPECT_EQ(line["session"], 9);
    EXPECT_EQ(line["position"], i);
    EXPECT_EQ(line["entropy"].get<float>(), static_cast<float>(row.entropy()));
    EXPECT_EQ(line["probability"].get<float>(),
              static_cast<float>(row.Probability(drafted[i])));
    tokens.push_back(drafted[i]);
  }
  // Its next token stands after the target's own.
  const std::vector<int32_t> next = fixture.TakeDrafted(9);
  ASSERT_FALSE(next.empty());
  fixture.Commit(9, 6, {next[0]});
  fixture.Drain();
  EXPECT_THAT(Outcomes(), ElementsAre(true, true, false, true));
  EXPECT_EQ(Lines().back()["position"], 3);
}

// A worker that stops has sessions that were not closed.
TEST_F(FeatureRecorderTest, TheEnginesEndWritesWhatWasNotJudged) {
  DraftFixture fixture({}, {}, nullptr, file_.get());
  for (const uint64_t id : {7, 8, 9}) {
    fixture.Open(MakeOpen(id, {3, 4, 5}, 4));
  }
  fixture.Drain();
  std::map<uint64_t, std::vector<int32_t>> drafted;
  for (const uint64_t id : {7, 8, 9}) drafted[id] = fixture.TakeDrafted(id);
  DraftCommands close;
  close.stream = 1;
  close.close.push_back(7);
  fixture.engine->Push(std::move(close));
  fixture.Commit(8, 3, {drafted[8][0]});
  fixture.Drain();
  ASSERT_EQ(Lines().size(), 4u + 1u);
  fixture.engine.reset();
  const std::vector<Json> lines = Lines();
  std::map<uint64_t, std::vector<int32_t>> recorded;
  for (const Json& line : lines) {
    const uint64_t session = line["session"];
    std::vector<int32_t>& tokens = recorded[session];
    EXPECT_EQ(line["position"], tokens.size());
    const bool was_judged = session == 8 && tokens.empty();
    EXPECT_EQ(line["accepted"], was_judged ? Json(true) : Json(nullptr));
    tokens.push_back(line["token"]);
  }
  // Also what was drafted after the commit.
  for (const int32_t id : fixture.TakeDrafted(8)) drafted[8].push_back(id);
  EXPECT_EQ(recorded, drafted);
  for (const auto& [session, tokens] : drafted) EXPECT_GE(tokens.size(), 4u);
}

// The states are those of the rows, and the last chunk is there without an
// outcome once the session is closed.
TEST_F(FeatureRecorderTest, TheEngineRecordsHiddenStates) {
  TableModelOptions model;
  model.shows_hidden = true;  // its logits
  const int size = TableModel(model).info().hidden_size;
  const std::string states = dir_ + "/states";
  ASSERT_TRUE(file_->AddHidden(states, size).ok());
  DraftFixture fixture(model, {}, nullptr, file_.get());
  const OpenDraft open = MakeOpen(9, {3, 4, 5}, 3);
  fixture.Open(open);
  fixture.Drain();
  const std::vector<int32_t> drafted = fixture.TakeDrafted(9);
  ASSERT_EQ(drafted.size(), 3u);
  DraftCommands close;
  close.stream = 1;
  close.close.push_back(9);
  fixture.engine->Push(std::move(close));
  fixture.Drain();
  const std::vector<Json> lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  std::ifstream stream(states, std::ios::binary);
  stream.seekg(worker::kHiddenHeaderBytes);
  std::vector<int32_t> tokens = {3, 4, 5};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(lines[i]["accepted"].is_null());
    EXPECT_EQ(lines[i]["token"], drafted[i]);
    EXPECT_EQ(lines[i]["row"], i);
    EXPECT_EQ(lines[i].value("fed", Json(-1)), i < 2 ? Json(i + 1) : Json(-1));
    std::vector<float> state(static_cast<size_t>(size));
    stream.read(reinterpret_cast<char*>(state.data()),
                static_cast<std::streamsize>(state.size() * sizeof(float)));
    ASSERT_TRUE(stream);
    EXPECT_EQ(state, fixture.model.Logits(tokens));
    tokens.push_back(drafted[i]);
  }
}

// A token that a policy discards is never sent, so it is never verified.
TEST_F(FeatureRecorderTest, DiscardedTokensAreNotRecorded) {
  DraftFixture fixture({}, {}, nullptr, file_.get());
  OpenDraft open = MakeOpen(1, {3, 4, 5}, 10);
  open.sampling = {};
  open.policy = "oracle";
  std::vector<int32_t> answer = Continue(fixture.model, open, {3, 4, 5}, 3);
  answer[2] = (answer[2] + 1) % 16;
  open.oracle_token_ids = answer;
  fixture.Open(open);
  fixture.Drain();
  fixture.Commit(1, 3, answer);
  fixture.Drain();
  EXPECT_THAT(Outcomes(), ElementsAre(true, true));
}

}  // namespace
}  // namespace nacre::draft_worker
