// Runs the layers of a transformer over the rows of a step, on whatever backend
// has them: from activations.hidden to activations.hidden.
//
// Thread-compatible, as the model that owns it and what it is made of.

#ifndef MODEL_LAYER_RUNNER_H_
#define MODEL_LAYER_RUNNER_H_

#include <memory>

#include "kernels/backend.h"
#include "model/activations.h"
#include "model/config.h"
#include "model/experts.h"
#include "model/step_rows.h"
#include "model/weights.h"

namespace nacre::model {

class LayerRunner {
 public:
  // All outlive it.
  LayerRunner(const ModelConfig& config, kernels::Backend* backend,
              const StepRows* rows, Activations* activations)
      : config_(config),
        epsilon_(static_cast<float>(config.norms.epsilon)),
        backend_(backend),
        rows_(rows),
        activations_(activations) {}

  // As the model's norms are.  x, out [rows, hidden_size]
  void Norm(const float* x, int rows, const NormWeights& norm, float* out);
  // Where there is this bias.                  rows [rows of the step, cols]
  void AddBias(const std::unique_ptr<kernels::Buffer>& bias, int cols,
               kernels::Buffer* rows);
  void Run(const LayerWeights& weights, int layer, const kernels::KvLayer& kv);
  // The two halves of Run: from activations.hidden to activations.attended, and
  // from there on. Blocks are not parallel where something comes between.
  void RunAttention(const LayerWeights& weights, int layer,
                    const kernels::KvLayer& kv);
  void RunFeedForward(const LayerWeights& weights, int layer);
  // Run, of a layer whose queries, keys and values, in activations.qkv, come
  // from elsewhere.
  void RunFromQkv(const LayerWeights& weights, int layer,
                  const kernels::KvLayer& kv);

 private:
  // What RmsNorm makes of x.                                 x [rows, hidden]
  kernels::NormedRows Normed(const float* x, const NormWeights& norm) const;
  // y = norm(x) w^T + bias; likewise.
  void NormMatMul(const float* x, const NormWeights& norm,
                  const kernels::PackedMatrix& w,
                  const std::unique_ptr<kernels::Buffer>& bias,
                  kernels::Buffer* y);
  // y = x w^T + bias, normed where there is a norm, + residual.
  void AddResidual(float* x, const kernels::PackedMatrix& w,
                   const std::unique_ptr<kernels::Buffer>& bias,
                   const std::unique_ptr<kernels::Buffer>& norm,
                   kernels::Buffer* residual, kernels::Buffer* y);
  // Those of the step, as a layer turns heads.
  kernels::HeadAngles AnglesOf(int layer) const;
  // Turns queries and keys of activations.qkv, and stores keys and values.
  void RopeStoreKv(const LayerWeights& weights, int layer,
                   const kernels::KvLayer& kv);
  // Attention of the queries in activations.qkv.
  void Attend(const LayerWeights& weights, int layer,
              const kernels::KvLayer& kv);
  void RunExperts(const LayerWeights& weights);

  const ModelConfig& config_;
  const float epsilon_;
  kernels::Backend* const backend_;
  const StepRows* const rows_;
  Activations* const activations_;
  ExpertBlock experts_;
};

}  // namespace nacre::model

#endif  // MODEL_LAYER_RUNNER_H_
