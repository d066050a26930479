#include "model/tied_head.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/dtype.h"
#include "model/expected_tensors.h"

namespace nacre::model {
namespace {

constexpr int kTiedRowsAtOnce = 256;

float ValueAt(kernels::DType dtype, const char* bytes, size_t index) {
  if (dtype == kernels::DType::kF32) {
    float value;
    std::memcpy(&value, bytes + index * sizeof(value), sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes + index * sizeof(bits), sizeof(bits));
  return dtype == kernels::DType::kBF16 ? kernels::FromBF16(bits)
                                        : kernels::FromF16(bits);
}

bool AreEqual(kernels::DType one, const char* ones, kernels::DType other,
              const char* others, size_t count) {
  if (one == other &&
      std::memcmp(ones, others, count * kernels::SizeOf(one)) == 0) {
    return true;
  }
  for (size_t i = 0; i < count; ++i) {
    if (!(ValueAt(one, ones, i) == ValueAt(other, others, i))) return false;
  }
  return true;
}

}  // namespace

absl::Status CheckTiedHead(const Checkpoint& checkpoint,
                           const ModelConfig& config) {
  if (!config.tie_word_embeddings) return absl::OkStatus();
  const ExpectedTensor head = ExpectedTensors::UntiedHead(config);
  if (!checkpoint.Contains(head.name)) return absl::OkStatus();
  const ExpectedTensors outside = ExpectedTensors::OutsideLayers(config);
  const std::string& table = outside[TensorRole::kEmbedding].name;
  const int rows = static_cast<int>(head.shape[0]);
  const int cols = static_cast<int>(head.shape[1]);
  NACRE_ASSIGN_OR_RETURN(const MatrixRows one,
                         checkpoint.Rows(head.name, rows, cols));
  NACRE_ASSIGN_OR_RETURN(const MatrixRows other,
                         checkpoint.Rows(table, rows, cols));
  const size_t width = static_cast<size_t>(cols);
  std::vector<char> scratch[2];
  for (int first = 0; first < rows; first += kTiedRowsAtOnce) {
    const int count = std::min(kTiedRowsAtOnce, rows - first);
    const auto* ones =
        static_cast<const char*>(one.source->Read(first, count, &scratch[0]));
    const auto* others =
        static_cast<const char*>(other.source->Read(first, count, &scratch[1]));
    for (int row = 0; row < count; ++row) {
      const size_t begin = static_cast<size_t>(row) * width;
      if (AreEqual(one.matrix.dtype,
                   ones + begin * kernels::SizeOf(one.matrix.dtype),
                   other.matrix.dtype,
                   others + begin * kernels::SizeOf(other.matrix.dtype),
                   width)) {
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat(
          "tie_word_embeddings is true, but row ", first + row, " of ", rows,
          " of ", head.name, " is not that of ", table,
          ": say false to use it, or leave the tensor out"));
    }
    one.source->GiveBack(first, count);
    other.source->GiveBack(first, count);
  }
  return absl::OkStatus();
}

}  // namespace nacre::model
