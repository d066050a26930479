#include "kernels/cuda/gemm_plan.h"

#include <algorithm>
#include <initializer_list>

namespace nacre::kernels::cuda {
namespace {

// With room for no more rows than there are.
GemmPlan Skinny(GemmFormat format, const GemmOrder& order, int outputs,
                int rows, const GemmDevice& device) {
  const int vectors = WeightVectors(format);
  const int ring = SkinnyStages(vectors, rows) * vectors;
  const int sums = 2 * ((rows + 7) / 8) * 32;
  const size_t bytes =
      size_t{16} * kChains *
      (SkinnyGroups(vectors) * (ring + sums) + order.chain_blocks * rows * 8);
  const int walkers = std::min(
      GemmTiles(outputs), std::max(1, device.multiprocessors / order.slices));
  return {rows <= 8 ? GemmKernel::kSkinny8 : GemmKernel::kSkinny16,
          order.slices > 1 ? Apart::kSlices : Apart::kNothing,
          // More than half of a multiprocessor. Overlap lets blocks come early:
          // of two on one, the second would take the place of a kernel between
          // two products.
          std::max(bytes, static_cast<size_t>(device.shared_bytes) / 2 + 1024),
          int64_t{walkers} * order.slices};
}

template <typename Tile>
GemmPlan Tiled(GemmKernel kernel, GemmFormat format, int outputs, int rows,
               int slices) {
  const int vectors = WeightVectors(format);
  const int64_t output_tiles = (outputs + Tile::kOutputs - 1) / Tile::kOutputs;
  const int64_t row_tiles = (rows + Tile::kRows - 1) / Tile::kRows;
  return {kernel, Apart::kNothing,
          size_t{16} * TiledStages<Tile>(vectors) *
              TiledStageVectors<Tile>(vectors),
          output_tiles * row_tiles * slices};
}

template <typename Tile>
GemmPlan Wide(GemmKernel kernel, GemmFormat format, int outputs, int rows,
              int parts) {
  const int vectors = WeightVectors(format);
  GemmPlan plan = Tiled<Tile>(kernel, format, outputs, rows, parts);
  // A stage of weights has two barriers.
  plan.shared_bytes =
      size_t{16} *
          (WideStages<Tile>(vectors) * (Tile::kOutputTiles * vectors + 1) +
           WideRowStages<Tile>(vectors) * Tile::kRows * 8) +
      kWideAlignment - 16;
  return plan;
}

// None where the device has too little shared memory.
std::optional<GemmPlan> PlanWide(GemmFormat format, const GemmOrder& order,
                                 Apart apart, int outputs, int rows,
                                 const GemmDevice& device) {
  const bool bf16 = format == GemmFormat::kBf16;
  const bool few_rows = rows <= kMaxRowsChainsApart;
  if (ChainsMayBeApart(format, order, outputs, rows)) apart = Apart::kChains;
  const int parts = PartsOf(order, apart);
  const GemmPlan plans[] = {
      Wide<Wide128x128>(GemmKernel::kWide128x128, format, outputs, rows, parts),
      Wide<Wide128x64>(GemmKernel::kWide128x64, format, outputs, rows, parts),
      Wide<Wide128x32>(GemmKernel::kWide128x32, format, outputs, rows, parts),
      bf16 ? Wide<Wide64x64>(GemmKernel::kWide64x64, format, outputs, rows,
                             parts)
           : Wide<Shallow64x64>(GemmKernel::kWide64x64, format, outputs, rows,
                                parts),
      bf16 ? Wide<Wide64x32>(GemmKernel::kWide64x32, format, outputs, rows,
                             parts)
           : Wide<Shallow64x32>(GemmKernel::kWide64x32, format, outputs, rows,
                                parts),
  };
  std::optional<GemmPlan> chosen;
  for (const GemmPlan& plan : plans) {
    const bool narrow = plan.kernel == GemmKernel::kWide128x32 ||
                        plan.kernel == GemmKernel::kWide64x32;
    if (narrow != (rows <= 32)) continue;
    if (plan.kernel == GemmKernel::kWide128x128 && few_rows) continue;
    const bool of_64 = plan.kernel == GemmKernel::kWide64x32 ||
                       plan.kernel == GemmKernel::kWide64x64;
    if (!bf16 && few_rows && !of_64) continue;
    if (plan.shared_bytes > static_cast<size_t>(device.shared_bytes)) continue;
    chosen = plan;
    if (3 * plan.blocks >= 2 * int64_t{device.multiprocessors}) break;
  }
  if (chosen.has_value()) chosen->apart = apart;
  return chosen;
}

}  // namespace

std::optional<GemmPlan> PlanGemm(GemmFormat format, const GemmOrder& order,
                                 int outputs, int rows,
                                 const GemmDevice& device) {
  const auto fits = [&](size_t bytes) {
    return bytes <= static_cast<size_t>(device.shared_bytes);
  };
  if (rows <= kSkinnyMaxRows) {
    const GemmPlan plan = Skinny(format, order, outputs, rows, device);
    if (fits(plan.shared_bytes)) return plan;
  }
  const Apart apart = order.slices > 1 && rows <= kMaxRowsApart
                          ? Apart::kSlices
                          : Apart::kNothing;
  const int slices = PartsOf(order, apart);
  std::optional<GemmPlan> chosen;
  if (device.wide) {
    const std::optional<GemmPlan> plan =
        PlanWide(format, order, apart, outputs, rows, device);
    if (plan.has_value()) return plan;
  }
  // From the most work per byte to the most blocks. The first that occupies two
  // thirds of the device, else the last that fits.
  const GemmPlan plans[] = {
      Tiled<Tile128x128>(GemmKernel::k128x128, format, outputs, rows, slices),
      Tiled<Tile128x64>(GemmKernel::k128x64, format, outputs, rows, slices),
      Tiled<Tile128x32>(GemmKernel::k128x32, format, outputs, rows, slices),
      Tiled<Tile32x64>(GemmKernel::k32x64, format, outputs, rows, slices),
      Tiled<Tile32x32>(GemmKernel::k32x32, format, outputs, rows, slices),
  };
  for (const GemmPlan& plan : plans) {
    const bool narrow =
        plan.kernel == GemmKernel::k128x32 || plan.kernel == GemmKernel::k32x32;
    const bool wide = plan.kernel == GemmKernel::k128x128;
    // No more rows than there are, and weights read once if that is possible.
    if (narrow != (rows <= 32) || (wide && rows <= 64)) continue;
    if (!fits(plan.shared_bytes)) continue;
    chosen = plan;
    if (3 * plan.blocks >= 2 * int64_t{device.multiprocessors}) break;
  }
  if (chosen.has_value()) chosen->apart = apart;
  return chosen;
}

}  // namespace nacre::kernels::cuda
