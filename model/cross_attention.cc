#include "model/cross_attention.h"

#include <algorithm>
#include <cmath>

#include "absl/types/span.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace nacre::model {

void CrossAttention::Clear() {
  runs_.clear();
  contexts_.clear();
  cos_.clear();
  sin_.clear();
}

void CrossAttention::Add(const TargetKv& target, int position) {
  rope_.Extend(position);
  const absl::Span<const float> cos = rope_.Cos(position);
  const absl::Span<const float> sin = rope_.Sin(position);
  cos_.insert(cos_.end(), cos.begin(), cos.end());
  sin_.insert(sin_.end(), sin.begin(), sin.end());
  // The target's own row of this position is computed later, or never.
  const int seen = std::min(position, target.length);
  const size_t row = contexts_.size();
  contexts_.push_back({target.table, seen - 1});
  if (seen == 0) return;
  NACRE_CHECK(target.table != nullptr, "a target's keys without a table");
  if (runs_.empty() || runs_.back().first + runs_.back().count != row) {
    runs_.push_back({row, 0});
  }
  ++runs_.back().count;
}

absl::Status CrossAttention::Begin() {
  const size_t count = contexts_.size() * static_cast<size_t>(config_.q_size());
  NACRE_RETURN_IF_ERROR(sent_cos_.Reserve(cos_.size()));
  NACRE_RETURN_IF_ERROR(sent_sin_.Reserve(sin_.size()));
  NACRE_RETURN_IF_ERROR(queries_.Reserve(count));
  NACRE_RETURN_IF_ERROR(found_.Reserve(count));
  sent_cos_.Send(cos_);
  sent_sin_.Send(sin_);
  SendZeros();
  return absl::OkStatus();
}

void CrossAttention::SendZeros() {
  const size_t width = static_cast<size_t>(config_.q_size());
  size_t row = 0;
  const auto until = [&](size_t end) {
    zeros_.resize((end - row) * width, 0);
    found_.Send(zeros_, row * width);
  };
  for (const Seeing& run : runs_) {
    until(run.first);
    row = run.first + run.count;
  }
  until(contexts_.size());
}

void CrossAttention::Run(const CrossWeights& weights,
                         const kernels::KvLayer& kv, int hidden_size,
                         Activations* activations) {
  Activations& a = *activations;
  const int rows = static_cast<int>(contexts_.size());
  const int heads = config_.num_attention_heads;
  const int head_dim = config_.head_dim;
  const int size = config_.q_size();
  const size_t width = static_cast<size_t>(size);
  backend_->MatMul(a.attended->f32(), rows, *weights.q, queries_.data());
  backend_->Rope(queries_.data(), rows, size, heads, head_dim, sent_cos_.data(),
                 sent_sin_.data());
  const kernels::AttentionRule rule(
      static_cast<float>(1.0 / std::sqrt(double{1} * head_dim)));
  for (const Seeing& run : runs_) {
    backend_->Attention(
        queries_.data() + run.first * width, size, heads, rule,
        absl::MakeConstSpan(contexts_).subspan(run.first, run.count), kv,
        found_.data() + run.first * width);
  }
  backend_->MatMul(found_.data(), rows, *weights.o, a.normed->f32());
  backend_->AddInPlace(
      a.attended->f32(), a.normed->f32(),
      static_cast<size_t>(rows) * static_cast<size_t>(hidden_size));
}

}  // namespace nacre::model
