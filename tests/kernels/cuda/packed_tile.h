// Reads packed weights back, following the words of gemm_layout.h.

#ifndef TESTS_KERNELS_CUDA_PACKED_TILE_H_
#define TESTS_KERNELS_CUDA_PACKED_TILE_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cuda/gemm_layout.h"

namespace nacre::kernels::cuda {

// The bytes of a packed tile as [16][inputs in whole blocks], and its scales as
// [16][blocks].
struct PackedTile {
  std::vector<uint8_t> bytes;
  std::vector<uint16_t> scales;
};

inline PackedTile ReadTile(GemmFormat format, int inputs, const void* packed) {
  const int blocks = GemmBlocks(inputs);
  const int columns = blocks * kBlockInputs;
  PackedTile tile = {std::vector<uint8_t>(16 * columns),
                     std::vector<uint16_t>(16 * blocks)};
  const auto* from = static_cast<const uint8_t*>(packed);
  constexpr int kOrder[] = {0, 2, 1, 3};
  for (int block = 0; block < blocks; ++block) {
    for (int half = 0; half < 2; ++half) {
      for (int rows = 0; rows < 2; ++rows) {
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < 8; ++i) {
            const int output = rows * 8 + lane / 4;
            const int of_four = kOrder[i % 4];
            const int input = block * 64 + half * 32 + i / 4 * 16 +
                              of_four / 2 * 8 + lane % 4 * 2 + of_four % 2;
            tile.bytes[output * columns + input] = *from++;
          }
        }
      }
    }
    if (format != GemmFormat::kInt8) continue;
    for (int i = 0; i < 16; ++i, from += 2) {
      std::memcpy(&tile.scales[(i / 2 + i % 2 * 8) * blocks + block], from, 2);
    }
  }
  return tile;
}

// Likewise a tile of int4: its integers as [16][inputs in whole blocks], its
// scales as [16][groups of 32 inputs].
struct Int4Tile {
  std::vector<int> integers;
  std::vector<uint16_t> scales;
};

inline Int4Tile ReadInt4Tile(int inputs, const void* packed) {
  const int blocks = GemmBlocks(inputs);
  const int columns = blocks * kBlockInputs;
  Int4Tile tile = {std::vector<int>(16 * columns),
                   std::vector<uint16_t>(16 * 2 * blocks)};
  const auto* from = static_cast<const uint8_t*>(packed);
  for (int block = 0; block < blocks; ++block) {
    for (int half = 0; half < 2; ++half) {
      for (int lane = 0; lane < 32; ++lane) {
        for (int rows = 0; rows < 2; ++rows, from += 4) {
          uint32_t word = 0;
          std::memcpy(&word, from, 4);
          for (int step = 0; step < 2; ++step) {
            for (int pair = 0; pair < 2; ++pair) {
              for (int of = 0; of < 2; ++of) {
                const int output = rows * 8 + lane / 4;
                const int input = block * 64 + half * 32 + step * 16 +
                                  pair * 8 + lane % 4 * 2 + of;
                const int shift = of * 16 + step * 8 + pair * 4;
                tile.integers[output * columns + input] =
                    static_cast<int>(word >> shift & 15) - 8;
              }
            }
          }
        }
      }
    }
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 16; ++i, from += 2) {
        const int output = i / 2 + i % 2 * 8;
        std::memcpy(&tile.scales[(output * blocks + block) * 2 + half], from,
                    2);
      }
    }
  }
  return tile;
}

// Likewise a tile of bf16, as [16][inputs in whole blocks].
inline std::vector<uint16_t> ReadBf16Tile(int inputs, const void* packed) {
  const int columns = GemmBlocks(inputs) * kBlockInputs;
  std::vector<uint16_t> tile(static_cast<size_t>(16) * columns);
  const auto* from = static_cast<const uint16_t*>(packed);
  for (int block = 0; block < columns; block += kBlockInputs) {
    for (int output = 0; output < 16; ++output) {
      for (int i = 0; i < kBlockInputs; ++i) {
        const int vector = i / 8 ^ output % 8;
        tile[output * columns + block + vector * 8 + i % 8] = *from++;
      }
    }
  }
  return tile;
}

// The integer that a byte of int8 stands for.
inline int IntegerOf(uint8_t byte) {
  return (byte & 0x80) != 0 ? -(byte & 0x7f) : byte;
}

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_PACKED_TILE_H_
