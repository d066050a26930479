#include "model/ranks/follower_model.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre::model {
namespace {

// What ends in "here, ... at the leader".
absl::Status Differs(const RankCommand& command, absl::string_view what,
                     const std::string& here, const std::string& leader) {
  return absl::InternalError(absl::StrCat("of sequence ", command.sequence, " ",
                                          what, " are ", here, " here, ",
                                          leader, " at the leader"));
}

std::string ToString(const TakenOver& taken) {
  return absl::StrCat(taken.positions, " positions, ", taken.brought,
                      " brought in ", taken.blocks, " blocks, ",
                      taken.more ? "and more" : "and no more");
}

}  // namespace

absl::Status FollowerModel::Do(const RankCommand& command) {
  if (!batch_.empty() && !std::holds_alternative<RowsCommand>(command.what)) {
    return absl::InternalError("a batch of rows that does not end");
  }
  if (const auto* created = std::get_if<NewSequenceCommand>(&command.what)) {
    return Create(command, *created);
  }
  NACRE_ASSIGN_OR_RETURN(Sequence* const sequence, Find(command));
  if (const auto* rows = std::get_if<RowsCommand>(&command.what)) {
    return AddRows(command, *rows, sequence);
  }
  if (std::holds_alternative<FreeCommand>(command.what)) {
    sequences_.erase(command.sequence);
    return CheckState(command, 0);
  }
  NACRE_RETURN_IF_ERROR(Change(command, sequence));
  return CheckState(command, sequence->length());
}

absl::Status FollowerModel::Create(const RankCommand& command,
                                   const NewSequenceCommand& sequence) {
  auto own = ranks_->NewTreeSequence(sequence.max_length, sequence.num_slots,
                                     sequence.token_ids);
  if (!own.ok()) {
    return absl::InternalError(absl::StrCat(
        "sequence ", command.sequence,
        ", for which the leader has room: ", own.status().message()));
  }
  const int length = (*own)->length();
  if (!sequences_.try_emplace(command.sequence, *std::move(own)).second) {
    return absl::InternalError(
        absl::StrCat("sequence ", command.sequence, " is there already"));
  }
  return CheckState(command, length);
}

absl::StatusOr<Sequence*> FollowerModel::Find(
    const RankCommand& command) const {
  const auto it = sequences_.find(command.sequence);
  if (it != sequences_.end()) return it->second.get();
  return absl::InternalError(
      absl::StrCat("there is no sequence ", command.sequence));
}

absl::Status FollowerModel::Change(const RankCommand& command,
                                   Sequence* sequence) {
  if (const auto* cut = std::get_if<TruncateCommand>(&command.what)) {
    sequence->Truncate(cut->length);
  } else if (const auto* kept = std::get_if<KeepPathCommand>(&command.what)) {
    const absl::Status status = sequence->KeepPath(kept->length, kept->slots);
    if (!status.ok()) {
      return absl::InternalError(
          absl::StrCat("a path of sequence ", command.sequence,
                       ", which the leader keeps: ", status.message()));
    }
  } else if (const auto* shared = std::get_if<ShareCommand>(&command.what)) {
    sequence->Share(shared->token_ids);
  } else if (const auto* over = std::get_if<TakeOverCommand>(&command.what)) {
    const TakenOver taken =
        sequence->TakeOver(over->token_ids, over->most_blocks);
    if (taken != over->taken) {
      return Differs(command, "taken over", ToString(taken),
                     ToString(over->taken));
    }
  }
  return absl::OkStatus();
}

absl::Status FollowerModel::AddRows(const RankCommand& command,
                                    const RowsCommand& rows,
                                    Sequence* sequence) {
  NACRE_RETURN_IF_ERROR(CheckState(command, sequence->length()));
  rows_.push_back(std::make_unique<RowsCommand>(rows));
  SequenceRows& own = batch_.emplace_back();
  own.sequence = sequence;
  own.token_ids = rows_.back()->token_ids;
  own.num_logits = rows.num_logits;
  own.nodes = rows_.back()->nodes;
  if (!rows.is_last) return absl::OkStatus();
  const absl::Status status = ranks_->Forward(batch_).status();
  batch_.clear();
  rows_.clear();
  // If the leader was not refused it, it goes on at another length.
  return absl::IsInvalidArgument(status) ? absl::OkStatus() : status;
}

absl::Status FollowerModel::CheckState(const RankCommand& command,
                                       int length) const {
  if (length != command.length) {
    return Differs(command, "positions", absl::StrCat(length),
                   absl::StrCat(command.length));
  }
  const int64_t free = ranks_->kv_free_tokens();
  if (free != command.kv_free_tokens) {
    return Differs(command, "then free in the KV cache", absl::StrCat(free),
                   absl::StrCat(command.kv_free_tokens));
  }
  return absl::OkStatus();
}

}  // namespace nacre::model
