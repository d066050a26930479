#include "kernels/staged_collective.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre::kernels {

absl::Status FailureOfRank(int rank, const absl::Status& status) {
  if (status.ok() || absl::StartsWith(status.message(), "rank ")) return status;
  return absl::Status(status.code(),
                      absl::StrCat("rank ", rank, ": ", status.message()));
}

absl::Status StagedCollective::Checked(const absl::Status& status) {
  if (!status.ok()) {
    failure_ = FailureOfRank(rank(), status);
    host_->Abort(failure_);
  }
  return failure_;
}

absl::StatusOr<float*> StagedCollective::Reserve(
    size_t count, std::unique_ptr<Buffer>* buffer) {
  const size_t bytes = count * sizeof(float);
  if (*buffer == nullptr || (*buffer)->size_bytes() < bytes) {
    buffer->reset();  // before there are two
    absl::StatusOr<std::unique_ptr<Buffer>> memory =
        device_->AllocateOnHost(bytes);
    NACRE_RETURN_IF_ERROR(Checked(memory.status()));
    *buffer = *std::move(memory);
  }
  return (*buffer)->f32();
}

absl::StatusOr<const float*> StagedCollective::Bring(const float* values,
                                                     size_t count) {
  NACRE_ASSIGN_OR_RETURN(float* const to, Reserve(count, &part_));
  device_->QueueCopyToHost(values, count * sizeof(float), to);
  NACRE_RETURN_IF_ERROR(Checked(device_->Synchronize()));
  return to;
}

absl::Status StagedCollective::AllReduce(const float* part, size_t count,
                                         float* sum) {
  NACRE_RETURN_IF_ERROR(failure_);
  NACRE_ASSIGN_OR_RETURN(float* const result, Reserve(count, &result_));
  NACRE_ASSIGN_OR_RETURN(const float* const from, Bring(part, count));
  failure_ = host_->AllReduce(from, count, result);
  NACRE_RETURN_IF_ERROR(failure_);
  device_->CopyFromHost(result, count * sizeof(float), sum);
  return absl::OkStatus();
}

absl::Status StagedCollective::Broadcast(float* values, size_t count) {
  NACRE_RETURN_IF_ERROR(failure_);
  if (rank() == 0) NACRE_RETURN_IF_ERROR(Bring(values, count).status());
  NACRE_ASSIGN_OR_RETURN(float* const sent,
                         rank() == 0 ? part_->f32() : Reserve(count, &part_));
  failure_ = host_->Broadcast(sent, count);
  NACRE_RETURN_IF_ERROR(failure_);
  if (rank() > 0) device_->CopyFromHost(sent, count * sizeof(float), values);
  return absl::OkStatus();
}

absl::Status StagedCollective::Gather(const float* part, int rows, int cols,
                                      float* whole) {
  NACRE_RETURN_IF_ERROR(failure_);
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(cols);
  const size_t all = count * static_cast<size_t>(ranks());
  float* result = nullptr;
  if (rank() == 0) {
    NACRE_ASSIGN_OR_RETURN(result, Reserve(all, &result_));
  }
  NACRE_ASSIGN_OR_RETURN(const float* const from, Bring(part, count));
  failure_ = host_->Gather(from, rows, cols, result);
  NACRE_RETURN_IF_ERROR(failure_);
  if (rank() == 0) device_->CopyFromHost(result, all * sizeof(float), whole);
  return absl::OkStatus();
}

}  // namespace nacre::kernels
