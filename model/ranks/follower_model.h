// The ranks of a node that is not the leader's: they do what the leader tells
// them (rank_command.h), with sequences of the same numbers.
//
// Thread-compatible: one thread.

#ifndef MODEL_RANKS_FOLLOWER_MODEL_H_
#define MODEL_RANKS_FOLLOWER_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/language_model.h"
#include "model/ranks/rank_command.h"

namespace nacre::model {

class FollowerModel {
 public:
  // `ranks`, of this node, outlives it.
  explicit FollowerModel(LanguageModel* ranks) : ranks_(ranks) {}

  // INTERNAL, with both values: what came of it is not what the leader says.
  // Errors of LanguageModel::Forward, but for what the leader is refused, too.
  // Nothing may be asked of it afterwards.
  absl::Status Do(const RankCommand& command);

 private:
  absl::Status Create(const RankCommand& command,
                      const NewSequenceCommand& sequence);
  absl::StatusOr<Sequence*> Find(const RankCommand& command) const;
  absl::Status Change(const RankCommand& command, Sequence* sequence);
  absl::Status AddRows(const RankCommand& command, const RowsCommand& rows,
                       Sequence* sequence);
  // Whether this node is where the leader is.
  absl::Status CheckState(const RankCommand& command, int length) const;

  LanguageModel* const ranks_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Sequence>> sequences_;
  // Of the batch that is not complete yet.
  std::vector<std::unique_ptr<RowsCommand>> rows_;
  std::vector<SequenceRows> batch_;
};

}  // namespace nacre::model

#endif  // MODEL_RANKS_FOLLOWER_MODEL_H_
