#include "worker/tensors/nccl_transfers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace nacre::worker {

NcclTransfers::~NcclTransfers() {
  Abort();
  if (lane_ != nullptr) lanes_->GiveBack(std::move(lane_));
}

absl::Status NcclTransfers::Open(std::unique_ptr<NcclLane> lane,
                                 const std::string& id) {
  lane_ = std::move(lane);
  NACRE_ASSIGN_OR_RETURN(
      comm_, api_->CommInitRank(id, static_cast<int>(end_), /*ranks=*/2));
  return absl::OkStatus();
}

void NcclTransfers::Abort() {
  const kernels::NcclApi::Comm comm = std::exchange(comm_, nullptr);
  if (comm != nullptr) api_->CommAbort(comm);
}

absl::StatusOr<bool> NcclTransfers::CanPost() {
  NACRE_ASSIGN_OR_RETURN(const bool is_idle, api_->CommIsIdle(comm_));
  if (!is_idle) return false;
  if (!is_marked_) {
    // Only now is the transfer on the stream.
    const Posted& last = under_way_.back();
    if (end_ == LinkEnd::kReceiver) {
      NACRE_RETURN_IF_ERROR(api_->CopyToHost(last.slot->device,
                                             sizeof(Header) + last.num_bytes,
                                             last.slot->host, lane_->stream));
    }
    NACRE_RETURN_IF_ERROR(api_->EventRecord(last.slot->event, lane_->stream));
    is_marked_ = true;
  }
  return under_way_.size() < kMostUnderWay;
}

NcclTransfers::Header NcclTransfers::HeaderOf(uint64_t number,
                                              size_t num_bytes) {
  return {number, (num_bytes + sizeof(float) - 1) / sizeof(float)};
}

absl::Status NcclTransfers::PostSend(uint64_t number, absl::string_view bytes) {
  NACRE_CHECK(bytes.size() <= kMaxBytes, "more than a transfer holds");
  const Header header = HeaderOf(number, bytes.size());
  auto* const host = static_cast<char*>(NextSlot()->host);
  std::memcpy(host, &header, sizeof(header));
  std::copy(bytes.begin(), bytes.end(), host + sizeof(header));
  return Post(number, bytes.size());
}

absl::Status NcclTransfers::PostReceive(uint64_t number, size_t num_bytes) {
  return Post(number, num_bytes);
}

absl::Status NcclTransfers::Post(uint64_t number, size_t num_bytes) {
  NACRE_CHECK(
      num_bytes <= kMaxBytes && under_way_.size() < kMostUnderWay && is_marked_,
      "a transfer that CanPost did not allow");
  Slot* const slot = NextSlot();
  const size_t bytes = sizeof(Header) + num_bytes;
  under_way_.push_back({number, num_bytes, slot});
  ++num_posted_;
  is_marked_ = false;
  if (end_ == LinkEnd::kReceiver) {
    return api_->Recv(slot->device, bytes, static_cast<int>(LinkEnd::kSender),
                      comm_, lane_->stream);
  }
  NACRE_RETURN_IF_ERROR(
      api_->CopyToDevice(slot->host, bytes, slot->device, lane_->stream));
  return api_->Send(slot->device, bytes, static_cast<int>(LinkEnd::kReceiver),
                    comm_, lane_->stream);
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
  done.number = first.number;
  done.num_bytes = first.num_bytes;
  if (end_ == LinkEnd::kSender) return done;
  const auto* const host = static_cast<const char*>(first.slot->host);
  const Header expected = HeaderOf(first.number, first.num_bytes);
  Header came;
  std::memcpy(&came, host, sizeof(came));
  if (came.number != expected.number || came.num_words != expected.num_words) {
    return absl::InternalError(
        absl::StrCat("transfer ", came.number, " of ", came.num_words,
                     " values came in the place of ", expected.number, " of ",
                     expected.num_words));
  }
  done.bytes = absl::string_view(host + sizeof(came), done.num_bytes);
  return done;
}

}  // namespace nacre::worker
