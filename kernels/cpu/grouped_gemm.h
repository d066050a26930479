// Products by weights in groups (kernels/weight_groups.h), whose values are
// made of their integers on the way from memory: the bits of the same weights
// in float32, in a fraction of the memory.
//
// A unit is 4 vectors of outputs, U in all, as in kernels/cpu/gemm.h:
//   unit  [block of inputs] of:
//         [U] f16 scales; [U] f16 scales of offsets, if there are any
//         [group] of [U] int8 steps and [U] uint8 offsets, if there are any
//         [piece of 32 inputs] of:
//           [low_bits][U] words of the low bits of integers, the first lowest
//           [high_bits][U] words of the bits above them
// The bits above those of 4 inputs in turn lie as far from each other as their
// low ones. So they are shifted together to where they belong.
//
// No vector code here.

#ifndef KERNELS_CPU_GROUPED_GEMM_H_
#define KERNELS_CPU_GROUPED_GEMM_H_

#include <cstddef>
#include <cstdint>

#include "kernels/weight_groups.h"

namespace nacre::kernels {

inline constexpr int kPieceInputs = 32;
inline constexpr int kChunkInputs = 4;

// Where things lie in a block.
struct GroupedLayout {
  GroupedLayout(const WeightGroups& groups, size_t unit_outputs);

  size_t step_bytes;  // of a group
  size_t steps;       // the first group's
  size_t piece_bytes;
  size_t pieces;  // the first one
  size_t block_bytes;
};

// The words of one output of a piece, [low_bits + high_bits]. integers [32]
void PackPiece(const WeightGroups& groups, const uint8_t* integers,
               uint32_t* words);

// A piece of a unit.
struct GroupedPiece {
  const WeightGroups* groups;
  const GroupedLayout* layout;
  const char* block;
  int index;  // in the block
};

inline constexpr int kMaxGroupedTileRows = 12;

struct GroupedKernels {
  // Rows of a tile at most.
  int tile_rows;
  // The weights of a piece, for several tiles. Null: they are larger tiles, and
  // `add` is faster for each.                         out [kPieceInputs][U]
  void (*decode)(const GroupedPiece& piece, float* out);
  // sums += weights * x, of 1, 2, ... tile_rows rows.
  //                          x [kPieceInputs][rows], sums [rows][U]
  void (*const* add)(const GroupedPiece& piece, const float* x, float* sums);
};

// Of the best target that this CPU supports.
GroupedKernels ChooseGroupedKernels(const WeightGroups& groups);

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_GROUPED_GEMM_H_
