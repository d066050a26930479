#include "model/layer_runner.h"

#include <cmath>
#include <cstddef>

namespace nacre::model {

void LayerRunner::Norm(const float* x, int rows, const NormWeights& norm,
                       float* out) {
  if (norm.bias == nullptr) {
    return backend_->RmsNorm(x, rows, config_.hidden_size, norm.weight->f32(),
                             epsilon_, out);
  }
  backend_->LayerNorm(x, rows, config_.hidden_size, norm.weight->f32(),
                      norm.bias->f32(), epsilon_, out);
}

void LayerRunner::NormMatMul(const float* x, const NormWeights& norm,
                             const kernels::PackedMatrix& w,
                             const std::unique_ptr<kernels::Buffer>& bias,
                             kernels::Buffer* y) {
  float* const normed = activations_->normed->f32();
  if (norm.bias == nullptr) {
    backend_->NormMatMul(x, rows_->size(), norm.weight->f32(), epsilon_, w,
                         normed, y->f32());
  } else {
    Norm(x, rows_->size(), norm, normed);
    backend_->MatMul(normed, rows_->size(), w, y->f32());
  }
  AddBias(bias, w.rows(), y);
}

void LayerRunner::AddBias(const std::unique_ptr<kernels::Buffer>& bias,
                          int cols, kernels::Buffer* rows) {
  if (bias == nullptr) return;
  backend_->AddBias(rows->f32(), rows_->size(), cols, bias->f32());
}

void LayerRunner::AddResidual(float* x, const kernels::PackedMatrix& w,
                              const std::unique_ptr<kernels::Buffer>& bias,
                              const std::unique_ptr<kernels::Buffer>& norm,
                              kernels::Buffer* residual, kernels::Buffer* y) {
  if (norm == nullptr) {
    backend_->MatMulAdd(x, rows_->size(), w, residual->f32(), y->f32());
    return AddBias(bias, w.rows(), y);
  }
  backend_->MatMul(x, rows_->size(), w, y->f32());
  AddBias(bias, w.rows(), y);
  backend_->RmsNorm(y->f32(), rows_->size(), w.rows(), norm->f32(), epsilon_,
                    y->f32());
  backend_->AddInPlace(
      y->f32(), residual->f32(),
      static_cast<size_t>(rows_->size()) * static_cast<size_t>(w.rows()));
}

void LayerRunner::Attend(const LayerWeights& weights, int layer,
                         const kernels::KvLayer& kv) {
  Activations& a = *activations_;
  const int rows = rows_->size();
  const int heads = config_.num_attention_heads;
  const int qkv_size = config_.q_size() + 2 * config_.kv_size();
  const Angles& angles =
      config_.has_local_rope(layer) ? a.local_angles : a.angles;
  kernels::AttentionRule rule(
      static_cast<float>(1.0 / std::sqrt(config_.attention_scalar)));
  if (config_.window(layer) > 0) rule.window = config_.window(layer);
  rule.soft_cap = static_cast<float>(config_.soft_caps.attention);

  if (config_.norms.of_heads) {
    backend_->NormHeads(a.qkv->f32(), rows, qkv_size, heads, config_.head_dim,
                        weights.query_norm->f32(), epsilon_);
    backend_->NormHeads(a.qkv->f32() + config_.q_size(), rows, qkv_size,
                        config_.num_key_value_heads, config_.head_dim,
                        weights.key_norm->f32(), epsilon_);
  }
  backend_->RopeStoreKv(a.qkv->f32(), heads, angles.cos->f32(),
                        angles.sin->f32(), rows_->contexts(), kv);
  backend_->Attention(a.qkv->f32(), qkv_size, heads, rule, rows_->contexts(),
                      kv, a.attention->f32());
  AddResidual(a.attention->f32(), *weights.o, weights.o_bias,
              weights.attention_post_norm, a.hidden.get(), a.attended.get());
}

void LayerRunner::RunExperts(const LayerWeights& weights) {
  Activations& a = *activations_;
  const int rows = rows_->size();
  Norm(a.attended->f32(), rows, weights.mlp_norm, a.normed->f32());
  experts_.Run(config_, backend_, *weights.router, weights.experts,
               a.normed->f32(), rows, &a.experts, a.hidden->f32());
  backend_->AddInPlace(
      a.hidden->f32(), a.attended->f32(),
      static_cast<size_t>(rows) * static_cast<size_t>(config_.hidden_size));
}

void LayerRunner::Run(const LayerWeights& weights, int layer,
                      const kernels::KvLayer& kv) {
  RunAttention(weights, layer, kv);
  RunFeedForward(weights, layer);
}

void LayerRunner::RunAttention(const LayerWeights& weights, int layer,
                               const kernels::KvLayer& kv) {
  NormMatMul(activations_->hidden->f32(), weights.input_norm, *weights.qkv,
             weights.qkv_bias, activations_->qkv.get());
  Attend(weights, layer, kv);
}

void LayerRunner::RunFromQkv(const LayerWeights& weights, int layer,
                             const kernels::KvLayer& kv) {
  Attend(weights, layer, kv);
  RunFeedForward(weights, layer);
}

void LayerRunner::RunFeedForward(const LayerWeights& weights, int layer) {
  if (config_.has_experts(layer)) return RunExperts(weights);
  Activations& a = *activations_;
  const int rows = rows_->size();
  const int inter = config_.intermediate_size;
  const auto& from = config_.blocks.is_parallel ? a.hidden : a.attended;
  NormMatMul(from->f32(), weights.mlp_norm, *weights.gate_up,
             weights.gate_up_bias, a.gate_up.get());
  if (!config_.blocks.has_gate) {
    backend_->Gelu(a.gate_up->f32(), rows, inter,
                   config_.activation == Activation::kGelu
                       ? kernels::GeluForm::kErf
                       : kernels::GeluForm::kTanh);
    AddResidual(a.gate_up->f32(), *weights.down, weights.down_bias,
                weights.mlp_post_norm, a.attended.get(), a.hidden.get());
  } else if (config_.activation == Activation::kSilu &&
             !config_.norms.after_both) {
    backend_->SiluMatMulAdd(a.gate_up->f32(), rows, *weights.down,
                            a.attended->f32(), a.mlp->f32(), a.hidden->f32());
    AddBias(weights.down_bias, config_.hidden_size, a.hidden.get());
  } else {
    if (config_.activation == Activation::kSilu) {
      backend_->SiluMul(a.gate_up->f32(), rows, inter, a.mlp->f32());
    } else {
      backend_->GeluMul(a.gate_up->f32(), rows, inter, a.mlp->f32());
    }
    AddResidual(a.mlp->f32(), *weights.down, weights.down_bias,
                weights.mlp_post_norm, a.attended.get(), a.hidden.get());
  }
}

}  // namespace nacre::model
