#include "model/head_outputs.h"

#include <utility>

#include "absl/status/statusor.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace nacre::model {
namespace {

bool Holds(const std::unique_ptr<kernels::Buffer>& buffer, size_t bytes) {
  return bytes == 0 || (buffer != nullptr && buffer->size_bytes() >= bytes);
}

}  // namespace

// An error is ignored: no caller could act on it.
HeadOutputs::~HeadOutputs() {
  // A copy that was not waited for may still be on its way.
  if (host_ids_ != nullptr) backend_->Synchronize().IgnoreError();
}

absl::Status HeadOutputs::Plan(absl::Span<const QueuedStep::Row> rows) {
  draws_.clear();
  runs_.clear();
  num_copied_ = 0;
  for (const QueuedStep::Row& row : rows) {
    draws_.push_back({row.draw, static_cast<int>(draws_.size())});
  }
  return MakeRoom();
}

absl::Status HeadOutputs::Plan(absl::Span<const SequenceRows> batch) {
  draws_.clear();
  runs_.clear();
  num_copied_ = 0;
  size_t row = 0;
  for (const SequenceRows& rows : batch) {
    const size_t count = static_cast<size_t>(rows.num_logits);
    NACRE_CHECK(rows.draws.empty() || rows.draws.size() == count,
                "not one draw for each row that yields logits");
    for (size_t i = 0; i < count; ++i, ++row) {
      if (!rows.draws.empty() && rows.draws[i].has_value()) {
        draws_.push_back({*rows.draws[i], static_cast<int>(row)});
        continue;
      }
      if (!backend_->copies_to_host()) continue;
      if (runs_.empty() || runs_.back().first + runs_.back().count != row) {
        runs_.push_back({row, 0});
      }
      ++runs_.back().count;
      ++num_copied_;
    }
  }
  NACRE_CHECK(draws_.empty() || backend_->token_drawer() != nullptr,
              "draws of a backend that draws no tokens");
  return MakeRoom();
}

absl::Status HeadOutputs::MakeRoom() {
  const size_t id_bytes = draws_.size() * sizeof(int32_t);
  if (!Holds(host_ids_, id_bytes)) {
    // A step that was dropped may still write what there is.
    NACRE_RETURN_IF_ERROR(backend_->Synchronize());
    NACRE_ASSIGN_OR_RETURN(host_ids_, backend_->AllocateOnHost(id_bytes));
  }
  if (!Holds(device_ids_, id_bytes)) {
    NACRE_ASSIGN_OR_RETURN(device_ids_, backend_->Allocate(id_bytes));
  }
  const size_t logit_bytes = num_copied_ * vocab_size_ * sizeof(float);
  if (!Holds(host_logits_, logit_bytes)) {
    host_logits_.reset();  // before there are two
    NACRE_ASSIGN_OR_RETURN(host_logits_, backend_->AllocateOnHost(logit_bytes));
  }
  return absl::OkStatus();
}

void HeadOutputs::Queue(const float* logits) {
  if (!draws_.empty()) {
    auto* const ids = static_cast<int32_t*>(device_ids_->data());
    backend_->token_drawer()->Draw(logits, static_cast<int>(vocab_size_),
                                   draws_, ids);
    backend_->QueueCopyToHost(ids, draws_.size() * sizeof(int32_t),
                              host_ids_->data());
  }
  float* to = num_copied_ > 0 ? host_logits_->f32() : nullptr;
  for (const Run& run : runs_) {
    const size_t values = run.count * vocab_size_;
    backend_->QueueCopyToHost(logits + run.first * vocab_size_,
                              values * sizeof(float), to);
    to += values;
  }
}

absl::Span<const float> HeadOutputs::logits() const {
  if (num_copied_ == 0) return {};
  return absl::MakeConstSpan(host_logits_->f32(), num_copied_ * vocab_size_);
}

absl::Span<const int32_t> HeadOutputs::drawn_tokens() const {
  if (draws_.empty()) return {};
  return absl::MakeConstSpan(static_cast<const int32_t*>(host_ids_->data()),
                             draws_.size());
}

}  // namespace nacre::model
