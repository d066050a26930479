// Commands of a leader and values of its ranks (proto/ranks.proto), to and from
// bytes.
//
// Pure functions.

#ifndef WORKER_RANKS_COMMAND_CONVERT_H_
#define WORKER_RANKS_COMMAND_CONVERT_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/node_link.h"
#include "kernels/rank_progress.h"
#include "model/ranks/rank_command.h"
#include "proto/ranks.pb.h"
#include "worker/ranks/node_facts.h"
#include "worker/ranks/value_inbox.h"

namespace nacre::worker {

void FillCommands(const std::vector<model::RankCommand>& commands,
                  v1::RankCommands* message);
// INVALID_ARGUMENT: a command of no kind, a number that is none, a tree whose
// lists differ in length.
absl::StatusOr<std::vector<model::RankCommand>> ToCommands(
    const v1::RankCommands& message);

// Cut into messages, in order.
void ForEachPiece(const kernels::NodeCall& call, const float* values,
                  const std::function<void(v1::RankValues)>& send);
ValuePiece ToPiece(const v1::RankValues& message);

void FillProgress(const std::vector<kernels::RankProgress>& ranks,
                  v1::RanksProgress* message);
// INVALID_ARGUMENT: more ranks, or longer texts, than there are.
absl::StatusOr<std::vector<kernels::RankProgress>> ToProgress(
    const v1::RanksProgress& message);

void FillFacts(const NodeFacts& facts, v1::NodeFacts* message);
NodeFacts ToFacts(const v1::NodeFacts& message);

}  // namespace nacre::worker

#endif  // WORKER_RANKS_COMMAND_CONVERT_H_
