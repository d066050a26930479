// What the leader of a model on several nodes tells its followers to do, in the
// order in which it does so itself. Each says what came of it at the leader, so
// that a follower on which something else came of it never computes on.
//
// Plain values. What features the leader keeps is no command: they are those of
// its first rank alone.

#ifndef MODEL_RANKS_RANK_COMMAND_H_
#define MODEL_RANKS_RANK_COMMAND_H_

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "model/language_model.h"

namespace nacre::model {

// As LanguageModel::NewTreeSequence, where it did not fail.
struct NewSequenceCommand {
  int max_length = 0;
  int num_slots = 0;
  std::vector<int32_t> token_ids;
  bool operator==(const NewSequenceCommand&) const = default;
};
// As Sequence::Truncate, KeepPath (where it did not fail), Share and TakeOver.
struct TruncateCommand {
  int length = 0;
  bool operator==(const TruncateCommand&) const = default;
};
struct KeepPathCommand {
  int length = 0;
  std::vector<int32_t> slots;
  bool operator==(const KeepPathCommand&) const = default;
};
struct ShareCommand {
  std::vector<int32_t> token_ids;
  bool operator==(const ShareCommand&) const = default;
};
struct TakeOverCommand {
  std::vector<int32_t> token_ids;
  int most_blocks = 0;
  TakenOver taken;  // what came of it
  bool operator==(const TakeOverCommand&) const = default;
};
// The sequence is destroyed.
struct FreeCommand {
  bool operator==(const FreeCommand&) const = default;
};
// Rows of this sequence, and of those of the commands after this one up to the
// last: as LanguageModel::Forward. Who draws from logits is the leader.
struct RowsCommand {
  std::vector<int32_t> token_ids;
  int num_logits = 0;
  std::vector<TreeNode> nodes;
  bool is_last = false;  // of its batch, which is computed then
  bool operator==(const RowsCommand& other) const;
};

struct RankCommand {
  uint64_t sequence = 0;  // that the leader gave the sequence; never used again
  std::variant<NewSequenceCommand, TruncateCommand, KeepPathCommand,
               ShareCommand, TakeOverCommand, FreeCommand, RowsCommand>
      what;
  // At the leader afterwards; of rows, before: the sequence's length (0 of one
  // that is destroyed) and LanguageModel::kv_free_tokens.
  int length = 0;
  int64_t kv_free_tokens = 0;
  bool operator==(const RankCommand&) const = default;
};

inline bool RowsCommand::operator==(const RowsCommand& other) const {
  const auto same = [](const TreeNode& a, const TreeNode& b) {
    return a.slot == b.slot && a.parent == b.parent && a.position == b.position;
  };
  if (nodes.size() != other.nodes.size()) return false;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!same(nodes[i], other.nodes[i])) return false;
  }
  return token_ids == other.token_ids && num_logits == other.num_logits &&
         is_last == other.is_last;
}

// Takes commands to all followers. For the leader's thread.
class RankCommandSink {
 public:
  virtual ~RankCommandSink() = default;

  // In order, without waiting for what comes of them. Errors: why a follower
  // was lost.
  virtual absl::Status SendCommands(
      const std::vector<RankCommand>& commands) = 0;
};

}  // namespace nacre::model

#endif  // MODEL_RANKS_RANK_COMMAND_H_
