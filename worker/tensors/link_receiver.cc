#include "worker/tensors/link_receiver.h"

#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace nacre::worker {
namespace {

v1::TensorLink LinkMessage(v1::LinkStep step, const std::string& text = "") {
  v1::TensorLink message;
  message.set_step(step);
  message.set_message(text);
  return message;
}

}  // namespace

v1::TensorLink LinkReceiver::Question() const {
  v1::TensorLink message = LinkMessage(v1::LINK_STEP_ASKED);
  message.set_kind(parts_.links->kind());
  message.set_rows(true);
  message.set_version(parts_.links->version());
  return message;
}

void LinkReceiver::OnMessage(const v1::TensorLink& message) {
  std::shared_ptr<SideLink> failed;
  {
    absl::MutexLock lock(&mu_);
    if (message.step() == v1::LINK_STEP_OFFERED && state_ == State::kAsked) {
      state_ = State::kOpening;
      link_ = parts_.links->Open(LinkEnd::kReceiver, message.id(), this);
    } else if (message.step() == v1::LINK_STEP_FAILED &&
               End(absl::StrCat("the publisher says: ", message.message()))) {
      failed = link_;
    }
  }
  if (failed == nullptr) return;
  failed->Close();
  parts_.tell(LinkMessage(v1::LINK_STEP_FAILED, message.message()));
}

bool LinkReceiver::OnHeader(const TensorChunk& header, uint64_t number) {
  const size_t element = ElementBytes(header.in_bf16);
  const absl::optional<size_t> num_values =
      NumValues(header.shape, parts_.links->max_bytes() / element);
  std::string reason;
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kOver) {
      // The publisher has yet to hear of it.
      ++parts_.counts->lost;
      return true;
    }
    if (state_ != State::kUp) {
      reason = "a header before the link was up";
    } else if (number != num_headers_ + 1 || header.offset != 0 ||
               (header.in_bf16 && !header.tag.is_rows) ||
               !header.data.empty() || !num_values.has_value()) {
      reason = absl::StrCat("a header for transfer ", number, " after ",
                            num_headers_, " that makes no sense");
    } else if (!link_->Expect(*num_values * element)) {
      reason = "more headers than transfers under way";
    } else {
      ++num_headers_;
      Tensor& tensor = expected_.emplace_back();
      tensor.tag = header.tag;
      tensor.shape = header.shape;
      tensor.in_bf16 = header.in_bf16;
      return true;
    }
  }
  GiveUp(reason);
  return false;
}

void LinkReceiver::OnStreamTensor() {
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kOver || num_headers_ == 0) return;
  }
  GiveUp("the publisher has left it");
}

void LinkReceiver::Close() {
  std::shared_ptr<SideLink> link;
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kUp) --parts_.counts->up;
    state_ = State::kOver;
    link = link_;
  }
  if (link != nullptr) link->Close();
}

void LinkReceiver::OnUp() {
  {
    absl::MutexLock lock(&mu_);
    if (state_ != State::kOpening) return;
    state_ = State::kUp;
    ++parts_.counts->up;
  }
  parts_.tell(LinkMessage(v1::LINK_STEP_UP));
}

void LinkReceiver::OnReceived(absl::string_view bytes) {
  Tensor tensor;
  {
    absl::MutexLock lock(&mu_);
    if (expected_.empty()) return;  // it is over
    tensor = std::move(expected_.front());
    expected_.pop_front();
  }
  std::vector<float> values(bytes.size() / ElementBytes(tensor.in_bf16));
  DecodeValues(bytes, tensor.in_bf16, values.data());
  tensor.Own(std::move(values));
  ++parts_.counts->received;
  parts_.counts->received_bytes += bytes.size();
  parts_.deliver(std::move(tensor));
}

void LinkReceiver::OnFailed(const absl::Status& reason) {
  const std::string text(reason.message());
  {
    absl::MutexLock lock(&mu_);
    if (!End(text)) return;
  }
  parts_.tell(LinkMessage(v1::LINK_STEP_FAILED, text));
}

void LinkReceiver::GiveUp(const std::string& reason) {
  std::shared_ptr<SideLink> link;
  {
    absl::MutexLock lock(&mu_);
    if (!End(reason)) return;
    link = link_;
  }
  if (link != nullptr) link->Close();
  parts_.tell(LinkMessage(v1::LINK_STEP_FAILED, reason));
}

bool LinkReceiver::End(const std::string& reason) {
  if (state_ == State::kOver) return false;
  if (state_ == State::kUp) --parts_.counts->up;
  state_ = State::kOver;
  ++parts_.counts->failures;
  parts_.counts->lost += expected_.size();
  expected_.clear();
  spdlog::warn("no {} link from {}, its tensors come over gRPC: {}",
               parts_.links->kind(), parts_.publisher, reason);
  return true;
}

}  // namespace nacre::worker
