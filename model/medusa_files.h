// Which tensors of a published file are Medusa heads. Four kinds are known, by
// the names of their tensors alone; k is a head, j one of its residual blocks:
//
//   medusa     {k}.{j}.linear.weight and .bias, as FasterDecoding/Medusa and
//              TGI save them. {k}.{blocks}.weight is the head's own vocabulary:
//              files of version 1 have it, those of version 2 do not
//   vllm       blocks.{k}.layers.{j}.weight, perhaps .bias; lm_heads.{k}.weight
//              of each head, or lm_heads.0.weight of all; perhaps token_map
//   modelopt   parallel_draft_heads.{k}.medusa_layers.{j}.linear.weight and
//              .bias; parallel_draft_heads.lm_head.weight of all heads, or
//              parallel_draft_heads.{k}.lm_head.weight of each
//
// Heads without a vocabulary use the target's. Names may begin with
// "medusa_heads." or "medusa_head.".
//
// Pure.

#ifndef MODEL_MEDUSA_FILES_H_
#define MODEL_MEDUSA_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace nacre::model {

struct MedusaLayout {
  static constexpr int kMaxHeads = 16;
  static constexpr int kMaxBlocks = 8;

  // Names of tensors, as in the file.
  struct Block {
    std::string weight;  // [hidden_size, hidden_size]
    std::string bias;    // [hidden_size]; empty: none
  };
  struct Head {
    std::vector<Block> blocks;  // x becomes SiLU(x W^T + bias) + x
    std::string vocabulary;     // [vocab_size, hidden_size]; empty: shared
  };

  std::string kind;
  std::vector<Head> heads;
  std::string vocabulary;  // of all heads; empty: of each, or the target's
  std::string token_map;  // of the vocabularies' rows to token ids; empty: none
};

// `names`: of all tensors of the file. INVALID_ARGUMENT with the name for one
// that is none of Medusa heads, is of another kind than those before, or is
// missing.
absl::StatusOr<MedusaLayout> FindMedusaLayout(
    absl::Span<const std::string> names);

}  // namespace nacre::model

#endif  // MODEL_MEDUSA_FILES_H_
