#include "model/activations.h"

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "common/status_macros.h"

namespace nacre::model {

absl::Status Activations::Grow(const ModelConfig& config,
                               kernels::MemoryOps* memory, int num_rows,
                               int num_logit_rows) {
  const auto allocate = [memory](int rows, int cols,
                                 std::unique_ptr<kernels::Buffer>* buffer) {
    absl::StatusOr<std::unique_ptr<kernels::Buffer>> allocated =
        memory->Allocate(static_cast<size_t>(rows) * static_cast<size_t>(cols) *
                         sizeof(float));
    if (!allocated.ok()) return allocated.status();
    *buffer = *std::move(allocated);
    return absl::OkStatus();
  };
  if (num_rows > max_rows) {
    const int size = config.hidden_size;
    const int inter = config.intermediate_size;
    max_rows = 0;  // until all of them have grown
    NACRE_RETURN_IF_ERROR(allocate(num_rows, size, &hidden));
    NACRE_RETURN_IF_ERROR(allocate(num_rows, size, &normed));
    NACRE_RETURN_IF_ERROR(
        allocate(num_rows, config.q_size() + 2 * config.kv_size(), &qkv));
    NACRE_RETURN_IF_ERROR(allocate(num_rows, config.q_size(), &attention));
    NACRE_RETURN_IF_ERROR(allocate(num_rows, size, &attended));
    NACRE_RETURN_IF_ERROR(allocate(num_rows, 2 * inter, &gate_up));
    NACRE_RETURN_IF_ERROR(allocate(num_rows, inter, &mlp));
    if (config.experts.count > 0) {
      const ExpertOptions& options = config.experts;
      const int chosen = num_rows * options.per_token;
      NACRE_RETURN_IF_ERROR(allocate(num_rows, options.count, &experts.logits));
      NACRE_RETURN_IF_ERROR(allocate(chosen, size, &experts.in));
      NACRE_RETURN_IF_ERROR(
          allocate(chosen, 2 * options.size, &experts.gate_up));
      NACRE_RETURN_IF_ERROR(allocate(chosen, options.size, &experts.gated));
      NACRE_RETURN_IF_ERROR(allocate(chosen, size, &experts.out));
    }
    max_rows = num_rows;
  }
  if (num_logit_rows > max_logit_rows) {
    max_logit_rows = 0;
    NACRE_RETURN_IF_ERROR(allocate(num_logit_rows, config.vocab_size, &logits));
    max_logit_rows = num_logit_rows;
  }
  return absl::OkStatus();
}

}  // namespace nacre::model
