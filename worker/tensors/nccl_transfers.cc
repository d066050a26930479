#include "worker/tensors/nccl_transfers.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace nacre::worker {

NcclTransfers::~NcclTransfers() {
  // First of all: it is what lets the stream's work end.
  if (comm_ != nullptr) api_->CommAbort(comm_);
  if (stream_ != nullptr) api_->StreamDestroy(stream_);
  for (const Slot& slot : slots_) {
    if (slot.event != nullptr) api_->EventDestroy(slot.event);
    if (slot.device != nullptr) api_->Free(slot.device);
    if (slot.host != nullptr) api_->FreeHost(slot.host);
  }
}

absl::Status NcclTransfers::Open(const std::string& id) {
  constexpr size_t kBytes = sizeof(Header) + kMaxValues * sizeof(float);
  NACRE_ASSIGN_OR_RETURN(stream_, api_->StreamCreate());
  for (Slot& slot : slots_) {
    NACRE_ASSIGN_OR_RETURN(slot.device, api_->Malloc(kBytes));
    NACRE_ASSIGN_OR_RETURN(slot.host, api_->MallocHost(kBytes));
    NACRE_ASSIGN_OR_RETURN(slot.event, api_->EventCreate());
  }
  NACRE_ASSIGN_OR_RETURN(comm_, api_->CommInitRank(id, static_cast<int>(end_)));
  return absl::OkStatus();
}

absl::StatusOr<bool> NcclTransfers::CanPost() {
  NACRE_ASSIGN_OR_RETURN(const bool is_idle, api_->CommIsIdle(comm_));
  if (!is_idle) return false;
  if (!is_marked_) {
    // Only now is the transfer on the stream.
    const Posted& last = under_way_.back();
    if (end_ == LinkEnd::kReceiver) {
      NACRE_RETURN_IF_ERROR(api_->CopyToHost(
          last.slot->device,
          sizeof(Header) + last.header.num_values * sizeof(float),
          last.slot->host, stream_));
    }
    NACRE_RETURN_IF_ERROR(api_->EventRecord(last.slot->event, stream_));
    is_marked_ = true;
  }
  return under_way_.size() < slots_.size();
}

absl::Status NcclTransfers::PostSend(uint64_t number,
                                     absl::Span<const float> values) {
  const Header header = {number, values.size()};
  auto* const host = static_cast<char*>(NextSlot()->host);
  std::memcpy(host, &header, sizeof(header));
  std::copy(values.begin(), values.end(),
            reinterpret_cast<float*>(host + sizeof(header)));
  return Post(header);
}

absl::Status NcclTransfers::PostReceive(uint64_t number, size_t num_values) {
  return Post({number, num_values});
}

absl::Status NcclTransfers::Post(const Header& header) {
  NACRE_CHECK(header.num_values <= kMaxValues &&
                  under_way_.size() < slots_.size() && is_marked_,
              "a transfer that CanPost did not allow");
  Slot* const slot = NextSlot();
  const size_t bytes = sizeof(header) + header.num_values * sizeof(float);
  under_way_.push_back({header, slot});
  ++num_posted_;
  is_marked_ = false;
  if (end_ == LinkEnd::kReceiver) {
    return api_->Recv(slot->device, bytes, static_cast<int>(LinkEnd::kSender),
                      comm_, stream_);
  }
  NACRE_RETURN_IF_ERROR(
      api_->CopyToDevice(slot->host, bytes, slot->device, stream_));
  return api_->Send(slot->device, bytes, static_cast<int>(LinkEnd::kReceiver),
                    comm_, stream_);
}

absl::StatusOr<NcclTransfers::Done> NcclTransfers::TakeDone() {
  Done done;
  if (under_way_.empty() || (under_way_.size() == 1 && !is_marked_)) {
    return done;
  }
  const Posted first = under_way_.front();
  NACRE_ASSIGN_OR_RETURN(done.any, api_->EventIsDone(first.slot->event));
  if (!done.any) return done;
  under_way_.pop_front();
  done.number = first.header.number;
  done.num_values = first.header.num_values;
  if (end_ == LinkEnd::kSender) return done;
  const auto* const host = static_cast<const char*>(first.slot->host);
  Header came;
  std::memcpy(&came, host, sizeof(came));
  if (came.number != done.number || came.num_values != done.num_values) {
    return absl::InternalError(absl::StrCat(
        "transfer ", came.number, " of ", came.num_values,
        " values came in the place of ", done.number, " of ", done.num_values));
  }
  done.values = absl::Span<const float>(
      reinterpret_cast<const float*>(host + sizeof(came)), done.num_values);
  return done;
}

}  // namespace nacre::worker
