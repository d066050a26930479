// Reads the tensors of a draft that runs beside its target into a backend's
// layout, and counts them.
//
// Thread-compatible; used while a draft is loaded.

#ifndef MODEL_DRAFT_TENSORS_H_
#define MODEL_DRAFT_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"

namespace nacre::model {

class DraftTensors {
 public:
  // Names as in the file, by what they are.
  using Names = std::map<std::string, std::string, std::less<>>;
  struct Rows {
    const char* part;
    int rows;
  };

  // All outlive it.
  DraftTensors(const Checkpoint& checkpoint, const Names& names,
               kernels::Backend* backend)
      : checkpoint_(checkpoint), names_(names), backend_(backend) {}

  // The part's own where the file has none.
  std::string NameOf(absl::string_view part) const;

  // Each: NOT_FOUND, INVALID_ARGUMENT or UNIMPLEMENTED naming the tensor that
  // is missing, has another shape, or has an unknown type;
  // RESOURCE_EXHAUSTED where the backend has no room.

  // One after the other, of the same columns.
  absl::StatusOr<std::unique_ptr<kernels::PackedMatrix>> Packed(
      absl::Span<const Rows> parts, int cols);
  absl::StatusOr<std::unique_ptr<kernels::PackedTable>> Table(const char* part,
                                                              int rows,
                                                              int cols);
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Vector(
      absl::Span<const Rows> parts);

  // Of all that it has read: `size_bytes` in the file.
  int64_t num_parameters() const { return num_parameters_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  absl::StatusOr<kernels::HostMatrix> Matrix(absl::string_view part, int rows,
                                             int cols);
  void Count(int64_t values, size_t bytes_each);

  const Checkpoint& checkpoint_;
  const Names& names_;
  kernels::Backend* const backend_;
  int64_t num_parameters_ = 0;
  int64_t size_bytes_ = 0;
};

}  // namespace nacre::model

#endif  // MODEL_DRAFT_TENSORS_H_
