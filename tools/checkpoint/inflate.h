// Makes a checkpoint slower without changing one bit of its output: more layers
// and wider feed-forward blocks whose last projections are zero. So the cost of
// a model can be set at will, while what it says stays real. Small checkpoints
// then measure acceptance at any cost ratio.
//
// Why the output keeps its bits: an added layer adds o_proj(..) = 0 and
// down_proj(..) = 0 to the residual stream; an added feed-forward column
// reaches the sum in down_proj as a product with 0. Adding zero is exact, and
// whole groups of 64 columns leave the others where they were in a reduction.
//
// Thread-safe: a pure function on distinct folders.

#ifndef TOOLS_CHECKPOINT_INFLATE_H_
#define TOOLS_CHECKPOINT_INFLATE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "model/progress.h"

namespace nacre::tools {

// Feed-forward columns are added in multiples of this.
inline constexpr int kInflateColumnGroup = 64;

struct InflateOptions {
  std::string in_dir;   // a Hugging Face folder
  std::string out_dir;  // created if it is not there; must be another folder
  int num_layers = 0;   // in all, at least those of the input
  std::optional<int> intermediate_size;  // in all; absent: as in the input
  uint64_t seed = 0;                     // of the random added weights
  model::ProgressCallback progress;      // may be empty; stage "inflate"
};

// Writes model.safetensors, config.json and copies of the tokenizer's files and
// generation_config.json. Holds one row at a time in memory. The config is
// written last, so a folder with one is whole. It says how many layers there
// were before any was added, as nacre_original_num_hidden_layers: drafts of the
// input read the layers that they were trained with. INVALID_ARGUMENT: fewer
// layers or columns than now, columns not in whole groups, out_dir the same as
// in_dir. UNIMPLEMENTED: quantized weights. Else the errors of reading the
// input and of the disk.
absl::Status InflateCheckpoint(const InflateOptions& options);

}  // namespace nacre::tools

#endif  // TOOLS_CHECKPOINT_INFLATE_H_
