#include "worker/ranks/value_inbox.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status_macros.h"

namespace nacre::worker {
namespace {

// Also of one without values, so that many of those count.
size_t SizeOf(const ValuePiece& piece) {
  return sizeof(ValuePiece) + piece.bytes.size();
}

}  // namespace

absl::Status ValueInbox::Push(ValuePiece piece) {
  const absl::MutexLock lock(&mu_);
  bytes_ += SizeOf(piece);
  if (bytes_ > most_bytes_) {
    pieces_.clear();
    return absl::ResourceExhaustedError(
        absl::StrCat("node ", from_, " has sent more than ", most_bytes_,
                     " bytes that no call has asked for"));
  }
  pieces_.push_back(std::move(piece));
  return absl::OkStatus();
}

void ValueInbox::End(const absl::Status& reason) {
  const absl::MutexLock lock(&mu_);
  if (reason_.ok()) reason_ = reason;
}

absl::Status ValueInbox::Receive(const kernels::NodeCall& call,
                                 absl::Duration patience, float* values) {
  uint64_t there = 0;
  while (there < call.count) {
    ValuePiece piece;
    {
      const absl::MutexLock lock(&mu_);
      if (!mu_.AwaitWithTimeout(absl::Condition(this, &ValueInbox::HasSome),
                                patience)) {
        return absl::DeadlineExceededError(
            absl::StrCat("node ", from_, " has sent nothing for ",
                         absl::FormatDuration(patience)));
      }
      NACRE_RETURN_IF_ERROR(reason_);
      piece = std::move(pieces_.front());
      pieces_.pop_front();
      bytes_ -= SizeOf(piece);
    }
    NACRE_RETURN_IF_ERROR(Place(call, piece, there, values));
    there += piece.bytes.size() / sizeof(float);
  }
  return absl::OkStatus();
}

absl::Status ValueInbox::Place(const kernels::NodeCall& call,
                               const ValuePiece& piece, uint64_t there,
                               float* values) const {
  NACRE_RETURN_IF_ERROR(kernels::CheckSameCall(from_, piece.call, call));
  const size_t size = piece.bytes.size();
  if (piece.offset != there || size == 0 || size % sizeof(float) != 0 ||
      size / sizeof(float) > call.count - there) {
    return absl::InternalError(
        absl::StrCat("node ", from_, " has sent ", size, " bytes at value ",
                     piece.offset, ", expected values ", there, " to ",
                     call.count, " of call ", call.number));
  }
  std::memcpy(values + there, piece.bytes.data(), size);
  return absl::OkStatus();
}

}  // namespace nacre::worker
