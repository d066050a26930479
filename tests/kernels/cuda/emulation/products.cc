// Products of the emulated machine's tensor cores, and loads of their operands.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

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

// PTX ISA, "Matrix descriptor": a field of 14 bits, in units of 16 bytes.
size_t FieldOf(uint64_t descriptor, int first_bit) {
  return (descriptor >> first_bit & 0x3fff) * kCopyBytes;
}

void Check(const SharedMatrix& matrix) {
  if (reinterpret_cast<uintptr_t>(matrix.nearby) % kAlignment != 0) {
    Die("a misaligned operand of a product");
  }
  // The swizzle of 128 bytes, from a multiple of kAlignment on.
  if (matrix.descriptor >> 62 != 1 || (matrix.descriptor >> 49 & 7) != 0) {
    Die("an operand of a product in another layout");
  }
}

// 16 bytes of a matrix. Lines are 128 bytes, 8 of them after each other:
// `line` counts them and `vector` their 16 bytes, from where the matrix begins.
const char* SharedVector(const SharedMatrix& matrix, int line, int vector,
                         size_t more = 0) {
  const auto nearby = reinterpret_cast<uintptr_t>(matrix.nearby);
  constexpr uintptr_t kWindow = 1 << 18;  // of a descriptor's addresses
  const uintptr_t past =
      (FieldOf(matrix.descriptor, 0) - nearby + kWindow / 2) % kWindow;
  uintptr_t at = nearby + past - kWindow / 2 + more +
                 line / 8 * FieldOf(matrix.descriptor, 32) + line % 8 * 128 +
                 static_cast<size_t>(vector) * kCopyBytes;
  at ^= (at >> 7 & 7) << 4;
  const auto* const found = reinterpret_cast<const char*>(at);
  for (int i = 0; i < kCopyBytes / kWordBytes; ++i) {
    const CopiedWord& by = CopiedTo(found)[i];
    if (by.block == block->number &&
        by.shows >= block->fibers[by.thread].shown) {
      Die("a product of what ShowToProducts has not shown");
    }
  }
  return found;
}

// 16 inputs of row (or column) `row`. If the matrix is not transposed a line
// has inputs of one row, else of 64 rows.
Factors SharedRow(const SharedMatrix& matrix, int row) {
  Factors factors;
  if (matrix.transposed == 0) {
    for (int half = 0; half < 2; ++half) {
      uint32_t words[4];
      std::memcpy(words, SharedVector(matrix, row, half), sizeof(words));
      for (int i = 0; i < 4; ++i) SetPair(factors, 8 * half + 2 * i, words[i]);
    }
    return factors;
  }
  const size_t more = row / 64 * FieldOf(matrix.descriptor, 16);
  for (int i = 0; i < 16; ++i) {
    uint16_t element;
    std::memcpy(&element,
                SharedVector(matrix, i, row % 64 / 8, more) +
                    sizeof(element) * (row % 8),
                sizeof(element));
    factors.Set(i, element);
  }
  return factors;
}

// PTX has all threads of a warpgroup issue the same ones in the same order.
Issued& Agree(const IssuedProduct& product) {
  std::vector<Issued>& issued = block->issued[current / kWarpgroup];
  const size_t number = CurrentFiber().issued++;
  if (number == issued.size()) issued.push_back({product, Toss()});
  if (issued[number].product != product) {
    Die("warps of a warpgroup that have different products");
  }
  return issued[number];
}

// By all lanes of a warp.
void RunProduct(const PendingProduct& product) {
  const int group = current % kWarp / 4;
  const int of_group = current / kWarp % 4;
  Warp& warp = block->warps[current / kWarp];
  const bool shared = product.in_shared;
  if (!shared) {
    const auto& a = product.a;
    const uint32_t words[] = {*a[0], *a[1], *a[2], *a[3]};
    SetRows(warp, words);
  }
  WarpBarrier();
  Factors weights[2];
  for (int i = 0; i < 2; ++i) {
    const int output = group + 8 * i;
    const int of_all = 16 * of_group + output;
    weights[i] = !shared                   ? warp.rows[output]
                 : product.read != nullptr ? product.read[of_all]
                                           : SharedRow(product.weights, of_all);
  }
  for (int i = 0; i < 2 * product.tiles; ++i) {
    const int row = i / 2 * 8 + current % 4 * 2 + i % 2;
    const Factors inputs = SharedRow(product.rows, row);
    for (int j = 0; j < 2; ++j) {
      float& d = product.d[i / 2 * 4 + 2 * j + i % 2];
      d = std::bit_cast<float>(FusedSum(
          weights[j], inputs, std::bit_cast<uint32_t>(product.keep ? d : 0)));
    }
  }
  WarpBarrier();
}

void RunProducts(std::vector<PendingProduct>* products) {
  for (const PendingProduct& product : *products) RunProduct(product);
  products->clear();
}

// By the first thread of the warpgroup that issues it: for all of them.
const Factors* ReadWeights(const SharedMatrix& weights, Issued& issued) {
  if (issued.weights == nullptr) {
    issued.weights = std::make_unique<std::array<Factors, 64>>();
    for (int row = 0; row < 64; ++row) {
      (*issued.weights)[row] = SharedRow(weights, row);
    }
  }
  return issued.weights->data();
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

void MultiplyAddWide(float* d, int row_tiles, const SharedMatrix* weights,
                     const std::array<const uint32_t*, 4>& a,
                     const SharedMatrix& rows, bool keep) {
  PendingProduct product = {d,    row_tiles, weights != nullptr, {}, {},
                            rows, keep};
  Check(rows);
  if (weights != nullptr) {
    Check(*weights);
    product.weights = *weights;
  } else {
    product.a = a;
  }
  Issued& issued = Agree({row_tiles, product.weights.descriptor,
                          rows.descriptor, rows.transposed, keep});
  if (issued.early && product.in_shared) {
    product.read = ReadWeights(product.weights, issued);
  }
  Fiber& fiber = CurrentFiber();
  fiber.open_products.push_back(product);
  if (!issued.early) return;
  for (auto& group : fiber.product_groups) RunProducts(&group);
  RunProducts(&fiber.open_products);
}

void StoreForProducts(uint32_t* to, uint32_t word) {
  *to = word;
  *CopiedTo(to) = {block->number, current, CurrentFiber().shows};
}

void CommitProducts() {
  Agree({});
  Fiber& fiber = CurrentFiber();
  fiber.product_groups.push_back(std::move(fiber.open_products));
  fiber.open_products.clear();
}

void WaitProducts(int pending) {
  while (static_cast<int>(CurrentFiber().product_groups.size()) > pending) {
    RunProducts(&CurrentFiber().product_groups.front());
    CurrentFiber().product_groups.pop_front();
  }
}

}  // namespace nacre::kernels::cuda::emulation
