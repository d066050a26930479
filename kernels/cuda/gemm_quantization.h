// Makes weights of 8 and 4 bits for the GPU's matrix product out of those of a
// checkpoint, on the host. One tile of 16 outputs at a time: tiles are
// independent, a caller may share them out among threads.
//
// Pure functions. Weights are finite.

#ifndef KERNELS_CUDA_GEMM_QUANTIZATION_H_
#define KERNELS_CUDA_GEMM_QUANTIZATION_H_

#include "kernels/backend.h"

namespace nacre::kernels::cuda {

// Integers and scales are those of every backend (kernels/quantization.h).
//   tile    from 0 to GemmTiles(matrix.rows) - 1
//   packed  PackedTileBytes(kInt8, matrix.cols) bytes: the tile
void QuantizeInt8Tile(const HostMatrix& matrix, int tile, void* packed);

// Likewise, with PackedTileBytes(kInt4, matrix.cols) bytes.
void QuantizeInt4Tile(const HostMatrix& matrix, int tile, void* packed);

// A row's scale is its largest magnitude / 448; weights are divided by it and
// rounded to the nearest E4M3, ties to even.
//   packed  PackedTileBytes(kFp8, matrix.cols) bytes: the tile
//   scales  [matrix.rows]; those of the tile's outputs are written
void QuantizeFp8Tile(const HostMatrix& matrix, int tile, void* packed,
                     float* scales);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_QUANTIZATION_H_
