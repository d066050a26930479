#include "kernels/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace nacre::kernels {
namespace {

constexpr size_t kAlignment = 64;

class HostBuffer : public Buffer {
 public:
  // Takes `allocation`, made by calloc, of at least bytes + kAlignment - 1.
  HostBuffer(void* allocation, size_t bytes)
      : allocation_(allocation), bytes_(bytes) {}
  ~HostBuffer() override { std::free(allocation_); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  void* data() override {
    const uintptr_t address = reinterpret_cast<uintptr_t>(allocation_);
    return static_cast<char*>(allocation_) + (-address & (kAlignment - 1));
  }
  size_t size_bytes() const override { return bytes_; }

 private:
  void* allocation_;
  size_t bytes_;
};

// Reading weights through 4 KiB pages costs a fifth of the bandwidth in address
// translation. Only a wish: the system may refuse.
void AdviseHugePages(void* allocation, size_t bytes) {
  constexpr size_t kMinBytes = size_t{4} << 20;
  constexpr uintptr_t kPage = 4096;
  if (bytes < kMinBytes) return;
  const uintptr_t address = reinterpret_cast<uintptr_t>(allocation);
  const uintptr_t begin = (address + kPage - 1) & ~(kPage - 1);
  const uintptr_t end = (address + bytes) & ~(kPage - 1);
  madvise(static_cast<char*>(allocation) + (begin - address), end - begin,
          MADV_HUGEPAGE);
}

// Of a matrix with a source.
void CopyRows(const HostMatrix& matrix, void* to) {
  const size_t row_bytes =
      static_cast<size_t>(matrix.cols) * SizeOf(matrix.dtype);
  const int together = RowsTogether(row_bytes);
  auto* out = static_cast<char*>(to);
  std::vector<char> scratch;
  for (int first = 0; first < matrix.rows; first += together) {
    const int count = std::min(together, matrix.rows - first);
    const size_t bytes = static_cast<size_t>(count) * row_bytes;
    std::memcpy(out, matrix.source->Read(first, count, &scratch), bytes);
    matrix.source->GiveBack(first, count);
    out += bytes;
  }
}

// Of a table.
size_t RowBytes(const HostMatrix& table) {
  const size_t cols = static_cast<size_t>(table.cols);
  return table.groups == nullptr
             ? cols * SizeOf(table.dtype)
             : cols / table.groups->block * table.groups->block_bytes;
}

// Of a table in groups.
void CopyBlocks(const HostMatrix& table, void* to) {
  const size_t row_bytes = RowBytes(table);
  const int together = RowsTogether(row_bytes);
  auto* out = static_cast<char*>(to);
  for (int first = 0; first < table.rows; first += together) {
    const int count = std::min(together, table.rows - first);
    for (int row = first; row < first + count; ++row, out += row_bytes) {
      std::memcpy(out, table.source->Blocks(row), row_bytes);
    }
    table.source->GiveBack(first, count);
  }
}

template <typename T>
T LoadUnaligned(const void* data, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * sizeof(T),
              sizeof(T));
  return value;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Buffer>> AllocateHostBuffer(size_t bytes) {
  // calloc, not a fill: untouched pages of a large KV pool cost nothing. No
  // object may exceed PTRDIFF_MAX bytes.
  void* allocation = bytes <= PTRDIFF_MAX - kAlignment
                         ? std::calloc(bytes + kAlignment, 1)
                         : nullptr;
  if (allocation == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for ", bytes, " bytes of host memory"));
  }
  AdviseHugePages(allocation, bytes);
  return std::make_unique<HostBuffer>(allocation, bytes);
}

int RowsTogether(size_t row_bytes) {
  constexpr size_t kBytesTogether = size_t{4} << 20;
  return static_cast<int>(std::clamp<size_t>(
      kBytesTogether / std::max<size_t>(row_bytes, 1), 1, kBytesTogether));
}

void LoadRow(const HostMatrix& matrix, size_t row, float* out) {
  LoadValues(matrix, row, 0, matrix.cols, out);
}

void LoadValues(const HostMatrix& matrix, size_t row, int first, int count,
                float* out) {
  const size_t size = static_cast<size_t>(count);
  const char* from =
      static_cast<const char*>(matrix.data) +
      (row * matrix.cols + static_cast<size_t>(first)) * SizeOf(matrix.dtype);
  switch (matrix.dtype) {
    case DType::kF32:
      if (size > 0) std::memcpy(out, from, size * sizeof(float));
      return;
    case DType::kBF16:
      for (size_t j = 0; j < size; ++j) {
        out[j] = FromBF16(LoadUnaligned<uint16_t>(from, j));
      }
      return;
    case DType::kF16:
      for (size_t j = 0; j < size; ++j) {
        out[j] = FromF16(LoadUnaligned<uint16_t>(from, j));
      }
      return;
    case DType::kInt8:
      NACRE_CHECK(false, "a matrix of integers without scales");
  }
}

int64_t HostTable::Bytes(const HostMatrix& table) {
  return static_cast<int64_t>(table.rows * RowBytes(table));
}

absl::StatusOr<std::unique_ptr<HostTable>> HostTable::CopyOf(
    const HostMatrix& table) {
  const size_t bytes = static_cast<size_t>(Bytes(table));
  absl::StatusOr<std::unique_ptr<Buffer>> memory = AllocateHostBuffer(bytes);
  if (!memory.ok()) return memory.status();
  HostMatrix copy = table;
  copy.data = (*memory)->data();
  copy.source = nullptr;
  if (table.groups != nullptr) {
    CopyBlocks(table, (*memory)->data());
  } else if (table.source != nullptr) {
    CopyRows(table, (*memory)->data());
  } else if (bytes > 0) {
    std::memcpy((*memory)->data(), table.data, bytes);
  }
  return std::unique_ptr<HostTable>(new HostTable(copy, *std::move(memory)));
}

void HostTable::Embed(absl::Span<const int32_t> ids, float* out) const {
  CheckTokenIds(ids, table_.rows);
  for (const int32_t id : ids) {
    if (table_.groups != nullptr) {
      const size_t row_bytes = RowBytes(table_);
      GroupedWeights(*table_.groups,
                     static_cast<const char*>(table_.data) + id * row_bytes,
                     row_bytes / table_.groups->block_bytes, out);
    } else {
      LoadRow(table_, static_cast<size_t>(id), out);
    }
    out += table_.cols;
  }
}

void CheckTokenIds(absl::Span<const int32_t> ids, int rows) {
  for (const int32_t id : ids) {
    NACRE_CHECK(id >= 0 && id < rows, "a token id outside the embedding table");
  }
}

int CheckedTotalRows(absl::Span<const HostMatrix> parts) {
  NACRE_CHECK(!parts.empty(), "no weights to pack");
  int rows = 0;
  for (const HostMatrix& part : parts) {
    NACRE_CHECK(part.rows > 0 && part.cols > 0, "an empty weight matrix");
    NACRE_CHECK(part.cols == parts[0].cols, "stacked weights differ in cols");
    NACRE_CHECK(part.data != nullptr || part.source != nullptr,
                "weights without data");
    rows += part.rows;
  }
  return rows;
}

}  // namespace nacre::kernels
