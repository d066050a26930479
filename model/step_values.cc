#include "model/step_values.h"

#include <utility>

#include "absl/status/statusor.h"
#include "common/check.h"

namespace nacre::model {
namespace {

using Allocate = absl::StatusOr<std::unique_ptr<kernels::Buffer>> (
    kernels::MemoryOps::*)(size_t bytes);

absl::Status Grow(size_t count, kernels::MemoryOps* memory, Allocate allocate,
                  size_t* size, std::unique_ptr<kernels::Buffer>* data) {
  if (count <= *size) return absl::OkStatus();
  data->reset();  // before there are two
  *size = 0;
  auto allocated = (memory->*allocate)(count * sizeof(float));
  if (!allocated.ok()) return allocated.status();
  *data = *std::move(allocated);
  *size = count;
  return absl::OkStatus();
}

}  // namespace

absl::Status StepValues::Reserve(size_t count) {
  return Grow(count, memory_, &kernels::MemoryOps::Allocate, &size_, &data_);
}

void StepValues::Send(absl::Span<const float> values, size_t first) {
  if (values.empty()) return;
  NACRE_CHECK(first <= size_ && values.size() <= size_ - first,
              "more values than were reserved");
  memory_->CopyFromHost(values.data(), values.size() * sizeof(float),
                        data() + first);
}

absl::Status BroughtValues::Reserve(size_t count) {
  return Grow(count, memory_, &kernels::MemoryOps::AllocateOnHost, &size_,
              &data_);
}

void BroughtValues::Bring(const float* values, size_t count, size_t first) {
  if (count == 0) return;
  NACRE_CHECK(first <= size_ && count <= size_ - first,
              "more values than were reserved");
  memory_->QueueCopyToHost(values, count * sizeof(float), data_->f32() + first);
}

absl::Span<const float> BroughtValues::Get(size_t first, size_t count) const {
  if (count == 0) return {};
  NACRE_CHECK(first <= size_ && count <= size_ - first,
              "more values than were reserved");
  return {data_->f32() + first, count};
}

}  // namespace nacre::model
