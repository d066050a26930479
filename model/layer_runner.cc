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

kernels::NormedRows LayerRunner::Normed(const float* x,
                                        const NormWeights& norm) const {
  return {x, rows_->size(), norm.weight->f32(), epsilon_,
          activations_->normed->f32()};
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

kernels::HeadAngles LayerRunner::AnglesOf(int layer) const {
  const Angles& angles = config_.has_local_rope(layer)
                             ? activations_->local_angles
                             : activations_->angles;
  return {config_.num_attention_heads, angles.cos, angles.sin};
}

void LayerRunner::RopeStoreKv(const LayerWeights& weights, int layer,
                              const kernels::KvLayer& kv) {
  float* const qkv = activations_->qkv->f32();
  const int rows = rows_->size();
  const int qkv_size = config_.q_size() + 2 * config_.kv_size();
  if (config_.norms.of_heads) {
    backend_->NormHeads(qkv, rows, qkv_size, config_.num_attention_heads,
                        config_.head_dim, weights.query_norm->f32(), epsilon_);
    backend_->NormHeads(qkv + config_.q_size(), rows, qkv_size,
                        config_.num_key_value_heads, config_.head_dim,
                        weights.key_norm->f32(), epsilon_);
  }
  const kernels::HeadAngles angles = AnglesOf(layer);
  backend_->RopeStoreKv(qkv, angles.num_heads, angles.cos, angles.sin,
                        rows_->contexts(), kv);
}

void LayerRunner::Attend(const LayerWeights& weights, int layer,
                         const kernels::KvLayer& kv) {
  Activations& a = *activations_;
  const int heads = config_.num_attention_heads;
  const int qkv_size = config_.q_size() + 2 * config_.kv_size();
  kernels::AttentionRule rule(
      static_cast<float>(1.0 / std::sqrt(config_.attention_scalar)));
  if (config_.window(layer) > 0) rule.window = config_.window(layer);
  rule.soft_cap = static_cast<float>(config_.soft_caps.attention);
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
  const float* const hidden = activations_->hidden->f32();
  kernels::Buffer* const qkv = activations_->qkv.get();
  if (weights.input_norm.bias == nullptr && !config_.norms.of_heads) {
    const float* const bias =
        weights.qkv_bias == nullptr ? nullptr : weights.qkv_bias->f32();
    backend_->NormMatMulRopeStoreKv(Normed(hidden, weights.input_norm),
                                    *weights.qkv, bias, AnglesOf(layer),
                                    rows_->contexts(), kv, qkv->f32());
  } else {
    NormMatMul(hidden, weights.input_norm, *weights.qkv, weights.qkv_bias, qkv);
    RopeStoreKv(weights, layer, kv);
  }
  Attend(weights, layer, kv);
}

void LayerRunner::RunFromQkv(const LayerWeights& weights, int layer,
                             const kernels::KvLayer& kv) {
  RopeStoreKv(weights, layer, kv);
  Attend(weights, layer, kv);
  RunFeedForward(weights, layer);
}

void LayerRunner::RunFeedForward(const LayerWeights& weights, int layer) {
  if (config_.has_experts(layer)) return RunExperts(weights);
  Activations& a = *activations_;
  const int rows = rows_->size();
  const int inter = config_.intermediate_size;
  const auto& from = config_.blocks.is_parallel ? a.hidden : a.attended;
  const bool is_gated_by_silu = config_.blocks.has_gate &&
                                config_.activation == Activation::kSilu &&
                                !config_.norms.after_both;
  if (is_gated_by_silu && weights.mlp_norm.bias == nullptr &&
      weights.gate_up_bias == nullptr) {
    backend_->NormSiluMatMulAdd(
        Normed(from->f32(), weights.mlp_norm), *weights.gate_up, *weights.down,
        a.attended->f32(), {a.gate_up->f32(), a.mlp->f32()}, a.hidden->f32());
    return AddBias(weights.down_bias, config_.hidden_size, a.hidden.get());
  }
  NormMatMul(from->f32(), weights.mlp_norm, *weights.gate_up,
             weights.gate_up_bias, a.gate_up.get());
  if (!config_.blocks.has_gate) {
    backend_->Gelu(a.gate_up->f32(), rows, inter,
                   config_.activation == Activation::kGelu
                       ? kernels::GeluForm::kErf
                       : kernels::GeluForm::kTanh);
    AddResidual(a.gate_up->f32(), *weights.down, weights.down_bias,
                weights.mlp_post_norm, a.attended.get(), a.hidden.get());
  } else if (is_gated_by_silu) {
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
