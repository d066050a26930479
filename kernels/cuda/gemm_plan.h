// Which kernel multiplies how many rows, with what. Plain C++, pure. Nothing
// here decides bits: every kernel keeps gemm_order.h.

#ifndef KERNELS_CUDA_GEMM_PLAN_H_
#define KERNELS_CUDA_GEMM_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/cuda/gemm_layout.h"
#include "kernels/cuda/gemm_order.h"

namespace nacre::kernels::cuda {

inline constexpr int kSkinnyGroupThreads = 32 * kChains;
inline constexpr int kSkinnyMaxRows = 16;
// Up to so many rows slices are computed by blocks of their own, into a
// workspace: there are too few tiles to fill the device.
inline constexpr int kMaxRowsApart = 256;
// Up to so many rows chains are, where that many multiprocessors would
// otherwise have nothing to do.
inline constexpr int kMaxRowsChainsApart = 64;
inline constexpr int kFewWideTiles = 128;

// May wide products have their chains apart?
inline bool ChainsMayBeApart(GemmFormat format, const GemmOrder& order,
                             int outputs, int rows) {
  return format != GemmFormat::kBf16 && rows > kSkinnyMaxRows &&
         rows <= kMaxRowsChainsApart &&
         (outputs + 63) / 64 * order.slices < kFewWideTiles;
}

// 16-byte vectors of a 16 x 64 tile of weights.
constexpr int WeightVectors(GemmFormat format) {
  return PackedBlockBytes(format) / 16;
}

// Groups of warps of a block of SkinnyKernel. Two where a weight must become
// bf16 first: that takes a warp longer than memory needs to bring the next.
constexpr int SkinnyGroups(int weight_vectors) {
  return weight_vectors < 2 * kBlockWeightBytes / 16 ? 2 : 1;
}

// Of weights, what a multiprocessor must wait for at any time to read as fast
// as memory gives: an H200's need.
inline constexpr int kBytesOnTheirWay = 48 << 10;

// Stages of a warp's ring, of kernels for up to `rows` rows. In every format as
// many bytes are on their way as activations and sums leave room for.
constexpr int SkinnyStages(int weight_vectors, int rows) {
  const int groups = SkinnyGroups(weight_vectors);
  // 66 are the least of which int8 has four stages.
  const int kilobytes = rows <= 8 || groups == 1 ? 80 : 66;
  return kilobytes * 64 / kChains / groups / weight_vectors;
}

// For device code, which may use values but not functions of the host.
template <typename Weights>
inline constexpr int kSkinnyGroups = SkinnyGroups(Weights::kVectors);
template <typename Weights, int kRows>
inline constexpr int kSkinnyStages = SkinnyStages(Weights::kVectors, kRows);

// What a block of TiledKernel computes: warps side by side over outputs and
// rows, each with kWarpOutputTiles of 16 outputs and kWarpRowTiles of 8 rows.
template <int kOutputWarpsOf, int kRowWarpsOf, int kWarpOutputTilesOf,
          int kWarpRowTilesOf, int kBlocksOf, int kSharedKilobytes>
struct GemmTile {
  static constexpr int kOutputWarps = kOutputWarpsOf;
  static constexpr int kRowWarps = kRowWarpsOf;
  static constexpr int kWarpOutputTiles = kWarpOutputTilesOf;
  static constexpr int kWarpRowTiles = kWarpRowTilesOf;
  static constexpr int kBlocks = kBlocksOf;  // of a multiprocessor
  static constexpr int kSharedBytes = kSharedKilobytes << 10;  // at most
  static constexpr int kThreads = 32 * kOutputWarps * kRowWarps;
  static constexpr int kOutputTiles = kOutputWarps * kWarpOutputTiles;
  static constexpr int kOutputs = kTileOutputs * kOutputTiles;
  static constexpr int kRows = 8 * kRowWarps * kWarpRowTiles;
};
using Tile32x32 = GemmTile<2, 2, 1, 2, 4, 48>;
using Tile32x64 = GemmTile<2, 2, 1, 4, 4, 48>;
using Tile128x32 = GemmTile<4, 1, 2, 4, 2, 97>;
using Tile128x64 = GemmTile<4, 1, 2, 8, 2, 97>;
using Tile128x128 = GemmTile<4, 2, 2, 8, 1, 128>;

// What a block of WideKernel computes: kGroups warpgroups side by side over
// outputs, 64 each.
template <int kGroupsOf, int kRowsOf, int kBlocksOf, int kSharedKilobytes>
struct WideTile {
  static constexpr int kBlocks = kBlocksOf;
  static constexpr int kSharedBytes = kSharedKilobytes << 10;
  static constexpr int kGroups = kGroupsOf;
  static constexpr int kWarps = 4 * kGroupsOf;  // that multiply
  // One more warp copies, with three idle ones where registers are moved to
  // those that multiply: that takes a warpgroup.
  static constexpr bool kMovesRegisters = kGroups == 2 && kRowsOf == 128;
  static constexpr int kThreads = 32 * kWarps + (kMovesRegisters ? 128 : 32);
  static constexpr int kOutputTiles = 4 * kGroupsOf;
  static constexpr int kOutputs = kTileOutputs * kOutputTiles;
  static constexpr int kRows = kRowsOf;
};
// Where these take bf16, one block a multiprocessor must keep enough bytes on
// their way. The other formats pass through registers, where several blocks
// hide each other's waits.
using Wide64x32 = WideTile<1, 32, 1, 192>;
using Wide64x64 = WideTile<1, 64, 1, 192>;
using Shallow64x32 = WideTile<1, 32, 3, 72>;
using Shallow64x64 = WideTile<1, 64, 3, 72>;
using Wide128x32 = WideTile<2, 32, 1, 192>;
using Wide128x64 = WideTile<2, 64, 1, 192>;
using Wide128x128 = WideTile<2, 128, 1, 192>;
// Where its stages begin in shared memory.
inline constexpr int kWideAlignment = 1024;

template <typename Tile>
constexpr int TiledStageVectors(int weight_vectors) {
  return Tile::kOutputTiles * weight_vectors + Tile::kRows * 8;
}

template <typename Tile>
constexpr int TiledStages(int weight_vectors) {
  const int fit =
      Tile::kSharedBytes / (16 * TiledStageVectors<Tile>(weight_vectors));
  return fit < 8 ? fit : 8;
}

// Of a block of WideKernel: stages of weights, and of rows. There are as many
// of both, up to 12, unless that leaves too few bytes of weights on their way.
// Then weights have as many as they need, and rows, which the cache has, what
// is left.
template <typename Tile>
constexpr int WideStages(int weight_vectors) {
  const int fit =
      Tile::kSharedBytes / (16 * TiledStageVectors<Tile>(weight_vectors));
  const int stages = fit < 12 ? fit : 12;
  const int bytes = 16 * Tile::kBlocks * Tile::kOutputTiles * weight_vectors;
  const int needed = 1 + (kBytesOnTheirWay + bytes - 1) / bytes;
  return stages > needed ? stages : needed;
}
template <typename Tile>
constexpr int WideRowStages(int weight_vectors) {
  const int stages = WideStages<Tile>(weight_vectors);
  const int fit =
      (Tile::kSharedBytes - 16 * stages * Tile::kOutputTiles * weight_vectors) /
      (16 * Tile::kRows * 8);
  return fit < stages ? fit : stages;
}

template <typename Weights, typename Tile>
inline constexpr int kTiledStages = TiledStages<Tile>(Weights::kVectors);
template <typename Weights, typename Tile>
inline constexpr int kWideStages = WideStages<Tile>(Weights::kVectors);
template <typename Weights, typename Tile>
inline constexpr int kWideRowStages = WideRowStages<Tile>(Weights::kVectors);

enum class GemmKernel {
  kSkinny8,
  kSkinny16,
  k32x32,
  k32x64,
  k128x32,
  k128x64,
  k128x128,
  kWide64x32,
  kWide64x64,
  kWide128x32,
  kWide128x64,
  kWide128x128,
};

struct GemmPlan {
  GemmKernel kernel;
  Apart apart;  // those into a workspace, then added
  size_t shared_bytes;
  int64_t blocks;  // of the grid
};

struct GemmDevice {
  int multiprocessors = 0;
  int shared_bytes = 0;  // that a block may have
  bool wide = false;     // warpgroups multiply as one, and this build uses it
};

// The plan for a product, or none where the device has too little shared
// memory.
std::optional<GemmPlan> PlanGemm(GemmFormat format, const GemmOrder& order,
                                 int outputs, int rows,
                                 const GemmDevice& device);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_PLAN_H_
