#include "kernels/nccl_collective.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/staged_collective.h"

namespace nacre::kernels {

NcclCollective::~NcclCollective() {
  group_->Abort(absl::AbortedError(absl::StrCat("rank ", rank(), " is gone")));
}

void NcclCollective::Abort(const absl::Status& reason) {
  group_->Abort(reason);
  if (host_ != nullptr) host_->Abort(group_->failure());
}

absl::Status NcclCollective::Reserve(size_t count) {
  const size_t bytes = count * sizeof(float);
  if (parts_ != nullptr && parts_->size_bytes() >= bytes) {
    return absl::OkStatus();
  }
  // Sums that are queued may still use it.
  absl::Status status =
      parts_ == nullptr ? absl::OkStatus() : backend_->Synchronize();
  parts_.reset();  // before there are two
  if (status.ok()) {
    absl::StatusOr<std::unique_ptr<Buffer>> memory = backend_->Allocate(bytes);
    status = memory.status();
    if (status.ok()) parts_ = *std::move(memory);
  }
  if (!status.ok()) Abort(FailureOfRank(rank(), status));
  return group_->failure();
}

absl::Status NcclCollective::AllReduce(const float* part, size_t count,
                                       float* sum) {
  const size_t all = static_cast<size_t>(ranks());
  const size_t most = most_scratch_ / sizeof(float) / all;
  NACRE_CHECK(most > 0, "no room for a value of each rank");
  NACRE_RETURN_IF_ERROR(Reserve(all * std::min(count, most)));
  for (size_t first = 0; first < count; first += most) {
    const size_t some = std::min(most, count - first);
    NACRE_RETURN_IF_ERROR(
        Queue({"an all-gather", some * sizeof(float)},
              [&](NcclCollectiveApi& api, NcclApi::Comm comm) {
                return api.AllGather(part + first, some * sizeof(float),
                                     parts_->data(), comm, backend_->Stream());
              }));
    backend_->AddParts(parts_->f32(), ranks(), some, sum + first);
  }
  return group_->failure();
}

absl::Status NcclCollective::Broadcast(float* values, size_t count) {
  if (count == 0) return group_->failure();
  return Queue({"a broadcast", count * sizeof(float)},
               [&](NcclCollectiveApi& api, NcclApi::Comm comm) {
                 return api.Broadcast(values, count * sizeof(float), comm,
                                      backend_->Stream());
               });
}

absl::Status NcclCollective::SendRows(const float* part, int rows, int cols,
                                      float* whole) {
  const size_t width = static_cast<size_t>(cols);
  const size_t bytes = width * sizeof(float);
  const auto send = [&](NcclCollectiveApi& api,
                        NcclApi::Comm comm) -> absl::Status {
    NcclApi::Stream const stream = backend_->Stream();
    NACRE_RETURN_IF_ERROR(api.GroupStart());
    absl::Status status;
    for (int row = 0; row < rows && status.ok(); ++row, part += width) {
      status = api.Send(part, bytes, /*peer=*/0, comm, stream);
      if (rank() != 0) continue;
      for (int from = 0; from < ranks() && status.ok(); ++from) {
        status = api.Recv(whole, bytes, from, comm, stream);
        whole += width;
      }
    }
    // Also after an error: the thread's group is open until then.
    const absl::Status ended = api.GroupEnd(comm);
    return status.ok() ? ended : status;
  };
  return Queue({"a gather", static_cast<size_t>(rows) * bytes}, send);
}

absl::Status NcclCollective::Gather(const float* part, int rows, int cols,
                                    float* whole) {
  const size_t width = static_cast<size_t>(cols);
  const size_t all = width * static_cast<size_t>(ranks());
  for (int first = 0; first < rows; first += kMostRows) {
    const size_t done = static_cast<size_t>(first);
    NACRE_RETURN_IF_ERROR(SendRows(part + done * width,
                                   std::min(kMostRows, rows - first), cols,
                                   rank() == 0 ? whole + done * all : nullptr));
  }
  return group_->failure();
}

}  // namespace nacre::kernels
