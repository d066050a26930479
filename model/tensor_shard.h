// How a model's weights are split among the ranks of one worker (tensor
// parallel). Each rank has whole heads, and its share of the feed-forward
// blocks and of the vocabulary head.
//
// Values and pure functions.

#ifndef MODEL_TENSOR_SHARD_H_
#define MODEL_TENSOR_SHARD_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/rank_backend.h"
#include "kernels/weight_type.h"
#include "model/config.h"
#include "model/expected_tensors.h"

namespace nacre::model {

// Which ranks there may be: 1, 2, 4 or 8.
bool IsRankCount(int ranks);

// What one rank loads; `backend`, its own, outlives it.
struct TensorShard {
  kernels::RankBackend* backend = nullptr;
  bool is_first_of_node = false;  // of its process' ranks: reads all files
  // Of what each rank calls it with, the least, on every rank: KV caches of
  // devices are as large as the smallest. All ranks call it, or one fails.
  std::function<absl::StatusOr<int64_t>(int64_t value)> least_of_ranks;

  int rank() const { return backend->rank(); }
  int ranks() const { return backend->ranks(); }

  // This rank's share of `size` rows, columns or values.
  int Size(int size) const { return size / ranks(); }
  int Begin(int size) const { return Size(size) * rank(); }
};

// Whether a tensor's rows, or a bias' values, are split: those of queries,
// keys, values, gates and what is up.
bool HasSplitRows(TensorRole role);

// INVALID_ARGUMENT, with the value and the limit:
// - heads, feed-forward blocks or the vocabulary cannot be split among so many
//   ranks;
// - the inputs of a sum cannot be split into kernels::kInputShards shards of
//   whole groups of the weight type.
// UNIMPLEMENTED: models of other families than Llama's kind.
absl::Status CheckSplit(const ModelConfig& config, kernels::WeightType weights,
                        int ranks);

// The config of what one rank computes: fewer heads, a smaller feed-forward
// block. CheckSplit has said that it is possible.
ModelConfig ConfigOfRank(ModelConfig config, int ranks);

}  // namespace nacre::model

#endif  // MODEL_TENSOR_SHARD_H_
