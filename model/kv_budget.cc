#include "model/kv_budget.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/config_cross.h"

namespace nacre::model {
namespace {

// Partial results of attention, block tables and what is drawn from.
constexpr int64_t kOperations = int64_t{192} << 20;
// Of the device, not of a limit of ours: kernels are loaded when they are first
// launched, and memory comes in pages.
constexpr int64_t kReserve = int64_t{256} << 20;

}  // namespace

int64_t ScratchBytes(const ModelConfig& config, int rows) {
  const int64_t hidden = config.hidden_size;
  const int64_t q = config.q_size();
  const int64_t chosen =
      config.experts.count == 0 ? 0 : config.experts.per_token;
  const int64_t widest = std::max(
      {2 * int64_t{config.intermediate_size}, int64_t{config.vocab_size},
       chosen * std::max(hidden, 2 * int64_t{config.experts.size})});
  // Of each expert that a row goes to: its input and output, gate and up, their
  // product.
  const int64_t experts =
      config.experts.count +
      chosen * (2 * hidden + 3 * int64_t{config.experts.size});
  const int64_t tables = config.windows.rope_theta > 0 ? 2 : 1;
  const int64_t positions = config.embedding.has_positions ? 1 : 0;
  // Of cross attention: queries, and what they found.
  const int64_t cross = config.cross.has_value()
                            ? 2 * int64_t{CrossHeads(*config.cross).q_size()}
                            : 0;
  // Three of the residual's size, q k v, attention, gate and up, their product,
  // tables of angles, logits, positions.
  const int64_t row = 3 * hidden + (q + 2 * int64_t{config.kv_size()}) + q +
                      3 * int64_t{config.intermediate_size} +
                      tables * config.head_dim + config.vocab_size + positions +
                      experts + cross;
  // A buffer that grows is there twice for a moment.
  return static_cast<int64_t>(sizeof(float)) * rows * (row + widest);
}

int64_t MostWeightBytes(const Checkpoint& draft) {
  int64_t stored = 0;
  for (const std::string& name : draft.Names()) {
    stored += draft.StoredBytes(name);
  }
  return 2 * stored;
}

absl::StatusOr<int64_t> KvBytes(const ModelConfig& config,
                                const kernels::DeviceMemory& memory,
                                const KvBudget& budget, int64_t per_token) {
  const int64_t scratch = ScratchBytes(config, budget.step_rows) +
                          budget.of_ranks + budget.draft.bytes +
                          std::min(kOperations, memory.total / 8);
  const int64_t reserve = std::min(kReserve, memory.total / 8);
  int64_t left = memory.free - scratch - reserve;
  if (memory.limit.has_value()) {
    left = std::min(left, *memory.limit - memory.used - scratch);
  }
  if (left <= 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no room for a KV cache: beside the weights, a step of ",
        budget.step_rows, " rows needs ", scratch, " bytes on the device",
        budget.draft.bytes == 0
            ? ""
            : absl::StrCat(", ", budget.draft.bytes, " of them for a draft"),
        ", ", memory.ToString()));
  }
  // The draft's own cache has room for as many tokens.
  const double own = static_cast<double>(per_token) /
                     static_cast<double>(per_token + budget.draft.per_token);
  const auto share =
      static_cast<int64_t>(static_cast<double>(left) * budget.share * own);
  return budget.most > 0 ? std::min(budget.most, share) : share;
}

}  // namespace nacre::model
