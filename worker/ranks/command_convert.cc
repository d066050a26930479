#include "worker/ranks/command_convert.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre::worker {
namespace {

constexpr size_t kPieceValues = (256 << 10) / sizeof(float);

template <typename Field>
void Copy(const std::vector<int32_t>& from, Field* to) {
  to->Add(from.begin(), from.end());
}

template <typename Field>
std::vector<int32_t> Copied(const Field& from) {
  return {from.begin(), from.end()};
}

uint32_t Unsigned(int value) { return static_cast<uint32_t>(value); }

// Of one command, whose numbers are all of ours: none is negative.
class Reader {
 public:
  int Int(uint32_t value) {
    if (value > static_cast<uint32_t>(std::numeric_limits<int>::max())) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat("a command with the number ", value));
      return 0;
    }
    return static_cast<int>(value);
  }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// Fills the message's kind.
struct Filler {
  v1::RankCommand* to;

  void operator()(const model::NewSequenceCommand& from) const {
    auto* const created = to->mutable_new_sequence();
    created->set_max_length(Unsigned(from.max_length));
    created->set_num_slots(Unsigned(from.num_slots));
    Copy(from.token_ids, created->mutable_token_ids());
  }
  void operator()(const model::TruncateCommand& from) const {
    to->set_truncate(Unsigned(from.length));
  }
  void operator()(const model::KeepPathCommand& from) const {
    to->mutable_keep_path()->set_length(Unsigned(from.length));
    Copy(from.slots, to->mutable_keep_path()->mutable_slots());
  }
  void operator()(const model::ShareCommand& from) const {
    Copy(from.token_ids, to->mutable_share()->mutable_token_ids());
  }
  void operator()(const model::TakeOverCommand& from) const {
    auto* const over = to->mutable_take_over();
    Copy(from.token_ids, over->mutable_token_ids());
    over->set_most_blocks(Unsigned(from.most_blocks));
    over->set_positions(Unsigned(from.taken.positions));
    over->set_brought(Unsigned(from.taken.brought));
    over->set_more(from.taken.more);
    over->set_blocks(Unsigned(from.taken.blocks));
  }
  void operator()(const model::FreeCommand&) const { to->mutable_free(); }
  void operator()(const model::RowsCommand& from) const {
    auto* const rows = to->mutable_rows();
    Copy(from.token_ids, rows->mutable_token_ids());
    rows->set_num_logits(Unsigned(from.num_logits));
    for (const model::TreeNode& node : from.nodes) {
      rows->add_node_slots(node.slot);
      rows->add_node_parents(node.parent);
      rows->add_node_positions(node.position);
    }
    rows->set_is_last(from.is_last);
  }
};

absl::StatusOr<model::RowsCommand> ToRows(const v1::RankCommand::Rows& from,
                                          Reader* reader) {
  model::RowsCommand rows;
  rows.token_ids = Copied(from.token_ids());
  rows.num_logits = reader->Int(from.num_logits());
  rows.is_last = from.is_last();
  const int nodes = from.node_slots_size();
  if (from.node_parents_size() != nodes ||
      from.node_positions_size() != nodes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a tree of ", nodes, " slots, ", from.node_parents_size(),
        " parents and ", from.node_positions_size(), " positions"));
  }
  for (int i = 0; i < nodes; ++i) {
    rows.nodes.push_back(
        {from.node_slots(i), from.node_parents(i), from.node_positions(i)});
  }
  return rows;
}

absl::StatusOr<model::RankCommand> ToCommand(const v1::RankCommand& from) {
  Reader reader;
  model::RankCommand command;
  command.sequence = from.sequence();
  command.length = reader.Int(from.length());
  command.kv_free_tokens = from.kv_free_tokens();
  switch (from.what_case()) {
    case v1::RankCommand::kNewSequence:
      command.what = model::NewSequenceCommand{
          reader.Int(from.new_sequence().max_length()),
          reader.Int(from.new_sequence().num_slots()),
          Copied(from.new_sequence().token_ids())};
      break;
    case v1::RankCommand::kTruncate:
      command.what = model::TruncateCommand{reader.Int(from.truncate())};
      break;
    case v1::RankCommand::kKeepPath:
      command.what =
          model::KeepPathCommand{reader.Int(from.keep_path().length()),
                                 Copied(from.keep_path().slots())};
      break;
    case v1::RankCommand::kShare:
      command.what = model::ShareCommand{Copied(from.share().token_ids())};
      break;
    case v1::RankCommand::kTakeOver: {
      const auto& over = from.take_over();
      command.what = model::TakeOverCommand{
          Copied(over.token_ids()),
          reader.Int(over.most_blocks()),
          {reader.Int(over.positions()), reader.Int(over.brought()),
           over.more(), reader.Int(over.blocks())}};
      break;
    }
    case v1::RankCommand::kFree:
      command.what = model::FreeCommand();
      break;
    case v1::RankCommand::kRows: {
      NACRE_ASSIGN_OR_RETURN(command.what, ToRows(from.rows(), &reader));
      break;
    }
    case v1::RankCommand::WHAT_NOT_SET:
      return absl::InvalidArgumentError("a command of no kind");
  }
  NACRE_RETURN_IF_ERROR(reader.status());
  return command;
}

}  // namespace

void FillCommands(const std::vector<model::RankCommand>& commands,
                  v1::RankCommands* message) {
  for (const model::RankCommand& command : commands) {
    v1::RankCommand* const to = message->add_commands();
    to->set_sequence(command.sequence);
    to->set_length(Unsigned(command.length));
    to->set_kv_free_tokens(command.kv_free_tokens);
    std::visit(Filler{to}, command.what);
  }
}

absl::StatusOr<std::vector<model::RankCommand>> ToCommands(
    const v1::RankCommands& message) {
  std::vector<model::RankCommand> commands;
  commands.reserve(static_cast<size_t>(message.commands_size()));
  for (const v1::RankCommand& each : message.commands()) {
    NACRE_ASSIGN_OR_RETURN(model::RankCommand command, ToCommand(each));
    commands.push_back(std::move(command));
  }
  return commands;
}

void ForEachPiece(const kernels::NodeCall& call, const float* values,
                  const std::function<void(v1::RankValues)>& send) {
  for (uint64_t offset = 0; offset < call.count; offset += kPieceValues) {
    const size_t count = std::min<uint64_t>(kPieceValues, call.count - offset);
    v1::RankValues piece;
    piece.set_call(call.number);
    piece.set_kind(static_cast<v1::CallKind>(call.kind));
    piece.set_count(call.count);
    piece.set_offset(offset);
    piece.set_values(values + offset, count * sizeof(float));
    send(std::move(piece));
  }
}

ValuePiece ToPiece(const v1::RankValues& message) {
  // Others are no call's.
  const int kind = message.kind() > v1::CALL_KIND_TEXT ? 0 : message.kind();
  return {{message.call(), static_cast<kernels::NodeCall::Kind>(kind),
           message.count()},
          message.offset(),
          message.values()};
}

void FillProgress(const std::vector<kernels::RankProgress>& ranks,
                  v1::RanksProgress* message) {
  for (const kernels::RankProgress& rank : ranks) {
    v1::RankProgress* const progress = message->add_ranks();
    progress->set_rank(static_cast<uint32_t>(rank.rank));
    progress->set_called(rank.called);
    progress->set_done(rank.done);
    progress->set_what(rank.what.substr(0, kernels::kMostProgressText));
    progress->set_waits_ms(static_cast<uint64_t>(rank.waits.count()));
  }
}

absl::StatusOr<std::vector<kernels::RankProgress>> ToProgress(
    const v1::RanksProgress& message) {
  constexpr uint64_t kMostMs = uint64_t{1} << 40;
  if (static_cast<size_t>(message.ranks_size()) > kernels::kMostProgressRanks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the progress of ", message.ranks_size(), " ranks, there are at most ",
        kernels::kMostProgressRanks));
  }
  std::vector<kernels::RankProgress> ranks;
  for (const v1::RankProgress& progress : message.ranks()) {
    if (progress.rank() >= kernels::kMostProgressRanks ||
        progress.done() > progress.called() ||
        progress.what().size() > kernels::kMostProgressText ||
        progress.waits_ms() > kMostMs) {
      return absl::InvalidArgumentError(absl::StrCat(
          "progress that none can have: rank ", progress.rank(), ", ",
          progress.done(), " of ", progress.called(), " calls, a text of ",
          progress.what().size(), " bytes, ", progress.waits_ms(), " ms"));
    }
    ranks.push_back({static_cast<int>(progress.rank()), progress.called(),
                     progress.done(), progress.what(),
                     std::chrono::milliseconds(progress.waits_ms())});
  }
  return ranks;
}

void FillFacts(const NodeFacts& facts, v1::NodeFacts* message) {
  for (const auto& [name, value] : facts) {
    v1::NodeFact* const fact = message->add_facts();
    fact->set_name(name);
    fact->set_value(value);
  }
}

NodeFacts ToFacts(const v1::NodeFacts& message) {
  NodeFacts facts;
  for (const v1::NodeFact& fact : message.facts()) {
    facts.emplace_back(fact.name(), fact.value());
  }
  return facts;
}

}  // namespace nacre::worker
