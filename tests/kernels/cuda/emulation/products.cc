// Products of the emulated machine's tensor cores, and loads of their operands.

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tests/kernels/cuda/emulation/machine.h"
#include "tests/kernels/cuda/emulation/machine_state.h"
#include "tests/kernels/cuda/emulation/tensor_core.h"

namespace nacre::kernels::cuda::emulation {
namespace {

constexpr uintptr_t kAlignment = 1024;  // of operands of products

void SetPair(Factors& factors, int first, uint32_t word) {
  factors.Set(first, static_cast<uint16_t>(word));
  factors.Set(first + 1, static_cast<uint16_t>(word >> 16));
}

// This lane's share of the left matrix.
void SetRows(Warp& warp, const uint32_t a[4]) {
  const int group = current % kWarp / 4;
  const int pair = current % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    SetPair(warp.rows[group + i % 2 * 8], pair + i / 2 * 8, a[i]);
  }
}

// Vector `vector` of a row of 64 elements in the swizzle of 128 bytes.
const char* SharedVector(const char* rows, int row, int vector) {
  const char* const at = rows + 128 * row + 16 * (vector ^ row % 8);
  const CopiedVector& by = CopiedTo(at);
  if (by.block == block->number && by.shows == block->fibers[by.thread].shows) {
    Die("a product of what ShowToProducts has not shown");
  }
  return at;
}

// Of a row of 64 inputs: those of a step.
Factors SharedRow(const char* rows, int row, int step) {
  Factors factors;
  for (int half = 0; half < 2; ++half) {
    uint32_t words[4];
    std::memcpy(words, SharedVector(rows, row, 2 * step + half), sizeof(words));
    for (int i = 0; i < 4; ++i) SetPair(factors, 8 * half + 2 * i, words[i]);
  }
  return factors;
}

// Of a column, 64 of which are a row: the rows of a step.
Factors SharedColumn(const PendingProduct& product, int column) {
  const char* const rows =
      product.rows + 128 * (column / 64 * product.column_rows);
  Factors factors;
  for (int i = 0; i < 16; ++i) {
    uint16_t element;
    std::memcpy(&element,
                SharedVector(rows, 16 * product.step + i, column % 64 / 8) +
                    sizeof(element) * (column % 8),
                sizeof(element));
    factors.Set(i, element);
  }
  return factors;
}

// By all lanes of a warp.
void RunProduct(const PendingProduct& product) {
  const int group = current % kWarp / 4;
  const int of_group = current / kWarp % 4;
  Warp& warp = block->warps[current / kWarp];
  const bool shared = product.weights != nullptr;
  if (!shared) SetRows(warp, product.a.data());
  WarpBarrier();
  Factors weights[2];
  for (int i = 0; i < 2; ++i) {
    const int output = group + 8 * i;
    weights[i] = shared ? SharedRow(product.weights, 16 * of_group + output,
                                    product.step)
                        : warp.rows[output];
  }
  for (int i = 0; i < 2 * product.tiles; ++i) {
    const int row = i / 2 * 8 + current % 4 * 2 + i % 2;
    const Factors inputs = product.column_rows > 0
                               ? SharedColumn(product, row)
                               : SharedRow(product.rows, row, product.step);
    for (int j = 0; j < 2; ++j) {
      float& d = product.d[i / 2 * 4 + 2 * j + i % 2];
      d = std::bit_cast<float>(FusedSum(
          weights[j], inputs, std::bit_cast<uint32_t>(product.keep ? d : 0)));
    }
  }
  WarpBarrier();
}

}  // namespace

namespace {

// Where the lanes of this warp find rows of matrices.
const void* const* ShareRows(const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % kCopyBytes != 0) {
    Die("a misaligned row of a matrix");
  }
  Warp& warp = block->warps[current / kWarp];
  warp.sources[current % kWarp] = row;
  WarpBarrier();
  return warp.sources;
}

uint16_t ElementOf(const void* row, int i) {
  uint16_t element;
  std::memcpy(&element, static_cast<const uint16_t*>(row) + i, sizeof(element));
  return element;
}

}  // namespace

void LoadMatrices(uint32_t words[4], const void* row) {
  const void* const* const rows = ShareRows(row);
  const int lane = current % kWarp;
  for (int matrix = 0; matrix < 4; ++matrix) {
    const void* const from = rows[8 * matrix + lane / 4];
    words[matrix] = ElementOf(from, lane % 4 * 2) |
                    uint32_t{ElementOf(from, lane % 4 * 2 + 1)} << 16;
  }
  WarpBarrier();
}

void LoadTransposed(const void* row, uint32_t words[4]) {
  const void* const* const rows = ShareRows(row);
  const int lane = current % kWarp;
  for (int matrix = 0; matrix < 4; ++matrix) {
    const void* const* const from = rows + 8 * matrix + lane % 4 * 2;
    words[matrix] = ElementOf(from[0], lane / 4) |
                    uint32_t{ElementOf(from[1], lane / 4)} << 16;
  }
  WarpBarrier();
}

// PTX ISA, "Matrix fragments for mma.m16n8k16": with g = lane / 4 and
// t = lane % 4, A's registers hold rows g, g + 8, g, g + 8 at inputs
// 2t, 2t + 1 (the last two registers: 8 more); B's column g likewise; D's rows
// g, g, g + 8, g + 8 at columns 2t, 2t + 1 in turn.
void MultiplyAdd(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  const int group = current % kWarp / 4;
  const int pair = current % 4 * 2;
  Warp& warp = block->warps[current / kWarp];
  SetRows(warp, a);
  for (int i = 0; i < 2; ++i) {
    SetPair(warp.columns[group], pair + i * 8, b[i]);
  }
  WarpBarrier();
  for (int i = 0; i < 4; ++i) {
    d[i] = std::bit_cast<float>(FusedSum(warp.rows[group + i / 2 * 8],
                                         warp.columns[pair + i % 2],
                                         std::bit_cast<uint32_t>(d[i])));
  }
  WarpBarrier();
}

void ShowToProducts() { ++CurrentFiber().shows; }

void MultiplyAddWide(float* d, int row_tiles, const void* weights,
                     const uint32_t* a, const void* rows, int step, bool keep) {
  if (reinterpret_cast<uintptr_t>(weights) % kAlignment != 0 ||
      reinterpret_cast<uintptr_t>(rows) % kAlignment != 0) {
    Die("a misaligned operand of a product");
  }
  PendingProduct product = {d,
                            row_tiles,
                            static_cast<const char*>(weights),
                            {},
                            static_cast<const char*>(rows),
                            step,
                            keep};
  if (a != nullptr) std::copy_n(a, 4, product.a.begin());
  CurrentFiber().open_products.push_back(product);
}

void MultiplyAddColumns(float* d, int column_tiles, const uint32_t* a,
                        const void* columns, int rows, int step) {
  MultiplyAddWide(d, column_tiles, nullptr, a, columns, step, /*keep=*/true);
  CurrentFiber().open_products.back().column_rows = rows;
}

void CommitProducts() {
  Fiber& fiber = CurrentFiber();
  fiber.product_groups.push_back(std::move(fiber.open_products));
  fiber.open_products.clear();
}

void WaitProducts(int pending) {
  while (static_cast<int>(CurrentFiber().product_groups.size()) > pending) {
    for (const PendingProduct& product :
         CurrentFiber().product_groups.front()) {
      RunProduct(product);
    }
    CurrentFiber().product_groups.pop_front();
  }
}

}  // namespace nacre::kernels::cuda::emulation
