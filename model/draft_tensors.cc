#include "model/draft_tensors.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre::model {
namespace {

using kernels::HostMatrix;

template <typename T>
absl::StatusOr<T> NamingTensor(const std::string& name,
                               absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return absl::Status(result.status().code(),
                      absl::StrCat(name, ": ", result.status().message()));
}

}  // namespace

std::string DraftTensors::NameOf(absl::string_view part) const {
  const auto found = names_.find(part);
  return found == names_.end() ? std::string(part) : found->second;
}

void DraftTensors::Count(int64_t values, size_t bytes_each) {
  num_parameters_ += values;
  size_bytes_ += values * static_cast<int64_t>(bytes_each);
}

absl::StatusOr<HostMatrix> DraftTensors::Matrix(absl::string_view part,
                                                int rows, int cols) {
  NACRE_ASSIGN_OR_RETURN(const HostMatrix matrix,
                         checkpoint_.Matrix(NameOf(part), rows, cols));
  Count(int64_t{rows} * cols, kernels::SizeOf(matrix.dtype));
  return matrix;
}

absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> DraftTensors::Packed(
    absl::Span<const Rows> parts, int cols) {
  std::vector<HostMatrix> matrices;
  for (const Rows& part : parts) {
    NACRE_ASSIGN_OR_RETURN(matrices.emplace_back(),
                           Matrix(part.part, part.rows, cols));
  }
  auto packed = backend_->Pack(matrices);
  checkpoint_.GiveBack();
  return NamingTensor(NameOf(parts.front().part), std::move(packed));
}

absl::StatusOr<std::unique_ptr<kernels::PackedTable>> DraftTensors::Table(
    const char* part, int rows, int cols) {
  NACRE_ASSIGN_OR_RETURN(const HostMatrix matrix, Matrix(part, rows, cols));
  auto packed = backend_->PackTable(matrix);
  checkpoint_.GiveBack();
  return NamingTensor(NameOf(part), std::move(packed));
}

absl::StatusOr<std::unique_ptr<kernels::Buffer>> DraftTensors::Vector(
    absl::Span<const Rows> parts) {
  std::vector<float> values;
  for (const Rows& part : parts) {
    NACRE_ASSIGN_OR_RETURN(const std::vector<float> own,
                           checkpoint_.Vector(NameOf(part.part), part.rows));
    values.insert(values.end(), own.begin(), own.end());
  }
  const size_t bytes = values.size() * sizeof(float);
  Count(static_cast<int64_t>(values.size()), sizeof(float));
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Buffer> buffer,
                         backend_->Allocate(bytes));
  backend_->CopyFromHost(values.data(), bytes, buffer->data());
  return buffer;
}

}  // namespace nacre::model
