#include "worker/ranks/command_convert.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::worker {
namespace {

using ::testing::HasSubstr;

std::vector<model::RankCommand> OneOfEachKind() {
  model::RowsCommand rows{{5, 6, 7}, 2, {{0, model::kNoSlot, 9}, {1, 0, 10}}};
  rows.is_last = true;
  return {{uint64_t{1} << 40, model::NewSequenceCommand{100, 8, {1, 2, 3}}, 2,
           int64_t{1} << 35},
          {2, model::TruncateCommand{0}, 0, 7},
          {2, model::KeepPathCommand{4, {0, 3}}, 6, 7},
          {3, model::ShareCommand{{9, 8}}, 6, 7},
          {3, model::TakeOverCommand{{9, 8}, 5, {32, 16, true, 1}}, 38, 7},
          {3, model::FreeCommand(), 0, 7},
          {4, std::move(rows), 3, 7}};
}

TEST(CommandConvertTest, CommandsAreTheSameAfterwards) {
  const std::vector<model::RankCommand> commands = OneOfEachKind();
  v1::RankCommands message;
  FillCommands(commands, &message);
  v1::RankCommands received;
  ASSERT_TRUE(received.ParseFromString(message.SerializeAsString()));
  const auto converted = ToCommands(received);
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_EQ(*converted, commands);
}

TEST(CommandConvertTest, RefusesWhatIsNoCommand) {
  v1::RankCommands none;
  none.add_commands()->set_sequence(3);
  EXPECT_THAT(ToCommands(none).status().ToString(),
              HasSubstr("a command of no kind"));
  v1::RankCommands large;
  large.add_commands()->set_truncate(1u << 31);
  EXPECT_THAT(ToCommands(large).status().ToString(),
              HasSubstr("a command with the number 2147483648"));
  v1::RankCommands tree;
  auto* const rows = tree.add_commands()->mutable_rows();
  rows->add_node_slots(1);
  rows->add_node_parents(1);
  EXPECT_THAT(ToCommands(tree).status().ToString(),
              HasSubstr("a tree of 1 slots, 1 parents and 0 positions"));
  EXPECT_EQ(ToCommands(tree).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CommandConvertTest, ValuesAreCutIntoPieces) {
  const size_t count = (300 << 10) / sizeof(float);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i) / 3;
  const kernels::NodeCall call = {9, kernels::NodeCall::Kind::kGather, count};
  std::string all;
  int pieces = 0;
  ForEachPiece(call, values.data(), [&](const v1::RankValues& message) {
    const ValuePiece piece = ToPiece(message);
    EXPECT_EQ(piece.call, call);
    EXPECT_EQ(piece.offset * sizeof(float), all.size());
    EXPECT_LE(piece.bytes.size(), 256u << 10);
    all += piece.bytes;
    ++pieces;
  });
  EXPECT_EQ(pieces, 2);
  EXPECT_EQ(all, std::string(reinterpret_cast<const char*>(values.data()),
                             count * sizeof(float)));
}

TEST(CommandConvertTest, AnUnknownKindOfCallIsNone) {
  v1::RankValues message;
  // 256 more than a sum.
  message.set_kind(static_cast<v1::CallKind>(257));
  EXPECT_EQ(ToPiece(message).call.kind, kernels::NodeCall::Kind{0});
}

TEST(CommandConvertTest, ProgressIsTheSameAfterwards) {
  const std::vector<kernels::RankProgress> ranks = {
      {2, 5, 4, "a broadcast of 8 bytes", std::chrono::milliseconds(700)},
      {3, 4, 4, "", std::chrono::milliseconds(0)}};
  v1::RanksProgress message;
  FillProgress(ranks, &message);
  EXPECT_EQ(*ToProgress(message), ranks);
  // Of ours the beginning.
  message.Clear();
  FillProgress({{0, 1, 0, std::string(100, 'a'), {}}}, &message);
  EXPECT_EQ((*ToProgress(message))[0].what,
            std::string(kernels::kMostProgressText, 'a'));
}

TEST(CommandConvertTest, ProgressThatNoneCanHaveIsRefused) {
  const auto refused = [](const std::function<void(v1::RankProgress*)>& edit) {
    v1::RanksProgress message;
    FillProgress({{7, 5, 4, "", {}}}, &message);
    EXPECT_TRUE(ToProgress(message).ok());
    edit(message.mutable_ranks(0));
    return ToProgress(message).status();
  };
  EXPECT_EQ(refused([](v1::RankProgress* rank) { rank->set_done(6); }),
            absl::InvalidArgumentError("progress that none can have: rank 7, 6 "
                                       "of 5 calls, a text of 0 bytes, 0 ms"));
  for (const auto& edit : std::vector<std::function<void(v1::RankProgress*)>>{
           [](v1::RankProgress* rank) { rank->set_rank(8); },
           [](v1::RankProgress* rank) {
             rank->set_what(std::string(kernels::kMostProgressText + 1, 'a'));
           },
           [](v1::RankProgress* rank) { rank->set_waits_ms(UINT64_MAX); }}) {
    EXPECT_EQ(refused(edit).code(), absl::StatusCode::kInvalidArgument);
  }
  v1::RanksProgress many;
  for (int i = 0; i < 9; ++i) many.add_ranks();
  EXPECT_EQ(ToProgress(many).status(),
            absl::InvalidArgumentError(
                "the progress of 9 ranks, there are at most 8"));
}

TEST(CommandConvertTest, FactsAreTheSameAfterwards) {
  const NodeFacts facts = {{"version", "0.2"}, {"nodes", "2"}};
  v1::NodeFacts message;
  FillFacts(facts, &message);
  EXPECT_EQ(ToFacts(message), facts);
}

}  // namespace
}  // namespace nacre::worker
