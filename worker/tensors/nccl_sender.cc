#include "worker/tensors/nccl_sender.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace nacre::worker {

NcclSender::NcclSender(NcclLinks* links, NcclSenderCounts* counts,
                       std::function<void()> changed)
    : links_(links), counts_(counts), changed_(std::move(changed)) {}

void NcclSender::OnMessage(const v1::TensorLink& message,
                           const std::string& reader) {
  std::shared_ptr<NcclLink> failed;
  {
    absl::MutexLock lock(&mu_);
    if (message.step() == v1::LINK_STEP_ASKED && state_ == State::kNotAsked) {
      reader_ = reader;
      if (links_ == nullptr) {
        state_ = State::kOver;
        Say(v1::LINK_STEP_FAILED, "", "the publisher has no NCCL");
      } else {
        state_ = State::kOpening;
        link_ = links_->Open(NcclEnd::kSender, "", this);
      }
    } else if (message.step() == v1::LINK_STEP_UP &&
               state_ == State::kOpening) {
      state_ = State::kUp;
      ++counts_->up;
    } else if (message.step() == v1::LINK_STEP_FAILED &&
               End(absl::StrCat("the reader says: ", message.message()))) {
      failed = link_;
    }
  }
  if (failed != nullptr) failed->Close();
  changed_();
}

bool NcclSender::TakeMessage(v1::TensorLink* message) {
  absl::MutexLock lock(&mu_);
  if (messages_.empty()) return false;
  *message = std::move(messages_.front());
  messages_.pop_front();
  return true;
}

NcclSender::Way NcclSender::NextWay() const {
  absl::MutexLock lock(&mu_);
  if (state_ != State::kUp) return Way::kStream;
  return link_->HasRoom() ? Way::kLink : Way::kLater;
}

uint64_t NcclSender::Send(const std::shared_ptr<const Tensor>& tensor) {
  std::shared_ptr<NcclLink> refused;
  {
    absl::MutexLock lock(&mu_);
    if (state_ != State::kUp) return 0;
    const size_t num_values = tensor->values.size();
    if (num_values <= NcclTransfers::kMaxValues) {
      return link_->Send(tensor) ? ++num_sent_ : 0;
    }
    const std::string reason =
        absl::StrCat("a tensor of ", num_values, " values, a transfer has at ",
                     "most ", NcclTransfers::kMaxValues);
    End(reason);
    Say(v1::LINK_STEP_FAILED, "", reason);
    refused = link_;
  }
  refused->Close();
  return 0;
}

void NcclSender::Close() {
  std::shared_ptr<NcclLink> link;
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kUp) --counts_->up;
    state_ = State::kOver;
    link = link_;
  }
  if (link != nullptr) link->Close();
}

void NcclSender::OnId(const std::string& id) {
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kOver) return;
    Say(v1::LINK_STEP_OFFERED, id, "");
  }
  changed_();
}

void NcclSender::OnSent(size_t num_values) {
  ++counts_->sent;
  counts_->sent_bytes += num_values * sizeof(float);
  changed_();
}

void NcclSender::OnFailed(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mu_);
    const std::string text(reason.message());
    if (End(text)) Say(v1::LINK_STEP_FAILED, "", text);
  }
  changed_();
}

void NcclSender::Say(v1::LinkStep step, const std::string& nccl_id,
                     const std::string& text) {
  v1::TensorLink& message = messages_.emplace_back();
  message.set_step(step);
  message.set_nccl_id(nccl_id);
  message.set_message(text);
}

bool NcclSender::End(const std::string& reason) {
  if (state_ == State::kOver) return false;
  if (state_ == State::kUp) --counts_->up;
  if (state_ != State::kNotAsked) {
    ++counts_->failures;
    spdlog::warn("the NCCL link to {} is over, tensors go over gRPC: {}",
                 reader_, reason);
  }
  state_ = State::kOver;
  return true;
}

}  // namespace nacre::worker
