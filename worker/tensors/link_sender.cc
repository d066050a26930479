#include "worker/tensors/link_sender.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/quoted.h"

namespace nacre::worker {
namespace {

// Why a reader that asks for a link gets none; empty: it does.
std::string RefusalOf(const SideLinks* links, const v1::TensorLink& asked) {
  // Readers of before there were kinds name none.
  if (links == nullptr ||
      (!asked.kind().empty() && asked.kind() != links->kind())) {
    return "the publisher has no such link";
  }
  const std::string own = links->version();
  if (asked.version().empty() || asked.version() == own) return "";
  return absl::StrCat("the reader has ", links->kind(), " ",
                      Quoted(asked.version()), ", the publisher has ",
                      Quoted(own), ": both must be the same");
}

}  // namespace

LinkSender::LinkSender(SideLinks* links, LinkSenderCounts* counts,
                       std::function<void()> changed)
    : links_(links), counts_(counts), changed_(std::move(changed)) {}

void LinkSender::OnMessage(const v1::TensorLink& message,
                           const std::string& reader) {
  std::shared_ptr<SideLink> failed;
  {
    absl::MutexLock lock(&mu_);
    if (message.step() == v1::LINK_STEP_ASKED && state_ == State::kNotAsked) {
      reader_ = reader;
      takes_rows_ = message.rows();
      const std::string refusal = RefusalOf(links_, message);
      if (!refusal.empty()) {
        state_ = State::kOver;
        Say(v1::LINK_STEP_FAILED, "", refusal);
      } else {
        state_ = State::kOpening;
        link_ = links_->Open(LinkEnd::kSender, "", this);
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

bool LinkSender::TakeMessage(v1::TensorLink* message) {
  absl::MutexLock lock(&mu_);
  if (messages_.empty()) return false;
  *message = std::move(messages_.front());
  messages_.pop_front();
  return true;
}

LinkSender::Way LinkSender::NextWay() const {
  absl::MutexLock lock(&mu_);
  if (state_ != State::kUp) return Way::kStream;
  return link_->HasRoom() ? Way::kLink : Way::kLater;
}

size_t LinkSender::max_row_bytes() const {
  absl::MutexLock lock(&mu_);
  return state_ == State::kUp && takes_rows_ ? links_->max_bytes() : 0;
}

LinkSender::Way LinkSender::RowsWay(size_t num_bytes) const {
  absl::MutexLock lock(&mu_);
  if (state_ != State::kUp || !takes_rows_ || num_bytes > links_->max_bytes()) {
    return Way::kStream;
  }
  return link_->HasRoom() ? Way::kLink : Way::kLater;
}

uint64_t LinkSender::SendRows(const std::shared_ptr<const WireTensor>& rows) {
  absl::MutexLock lock(&mu_);
  return state_ == State::kUp && link_->Send(rows) ? ++num_sent_ : 0;
}

uint64_t LinkSender::Send(const std::shared_ptr<const WireTensor>& tensor) {
  std::shared_ptr<SideLink> refused;
  {
    absl::MutexLock lock(&mu_);
    if (state_ != State::kUp) return 0;
    const size_t num_bytes = tensor->bytes.size();
    if (num_bytes <= links_->max_bytes()) {
      return link_->Send(tensor) ? ++num_sent_ : 0;
    }
    const std::string reason =
        absl::StrCat("a tensor of ", num_bytes, " bytes, a transfer has at ",
                     "most ", links_->max_bytes());
    End(reason);
    Say(v1::LINK_STEP_FAILED, "", reason);
    refused = link_;
  }
  refused->Close();
  return 0;
}

void LinkSender::Close() {
  std::shared_ptr<SideLink> link;
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kUp) --counts_->up;
    state_ = State::kOver;
    link = link_;
  }
  if (link != nullptr) link->Close();
}

void LinkSender::OnId(const std::string& id) {
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kOver) return;
    Say(v1::LINK_STEP_OFFERED, id, "");
  }
  changed_();
}

void LinkSender::OnSent(size_t num_bytes) {
  ++counts_->sent;
  counts_->sent_bytes += num_bytes;
  changed_();
}

void LinkSender::OnFailed(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mu_);
    const std::string text(reason.message());
    if (End(text)) Say(v1::LINK_STEP_FAILED, "", text);
  }
  changed_();
}

void LinkSender::Say(v1::LinkStep step, const std::string& id,
                     const std::string& text) {
  v1::TensorLink& message = messages_.emplace_back();
  message.set_step(step);
  message.set_id(id);
  message.set_message(text);
}

bool LinkSender::End(const std::string& reason) {
  if (state_ == State::kOver) return false;
  if (state_ == State::kUp) --counts_->up;
  if (state_ != State::kNotAsked) {
    ++counts_->failures;
    spdlog::warn("the {} link to {} is over, tensors go over gRPC: {}",
                 links_->kind(), reader_, reason);
  }
  state_ = State::kOver;
  return true;
}

}  // namespace nacre::worker
