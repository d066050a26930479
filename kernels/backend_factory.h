// The only file that knows which backends were compiled.

#ifndef KERNELS_BACKEND_FACTORY_H_
#define KERNELS_BACKEND_FACTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/weight_type.h"

namespace nacre::kernels {

inline constexpr char kOwnPrefill[] = "own";
inline constexpr char kCublasPrefill[] = "cublas";
// The help of every --prefill.
inline constexpr char kPrefillHelp[] =
    "what multiplies rows of prompts: own, the kernels of all other rows; or "
    "cublas, of a target on cuda with bf16 weights, for which cublasLt must be "
    "on the machine: it keeps the weights twice, and changes outputs";

struct BackendOptions {
  std::string kind = "cpu";  // "reference", "cpu" or "cuda"
  // Cores for compute threads, one thread each; kAnyCpu: an unpinned one;
  // empty: one unpinned thread.
  std::vector<int> cpus;
  int device = 0;  // cuda only
  // Of several ranks (model/tensor_parallel_model.h), one each; empty: from
  // `device` on.
  std::vector<int> devices;
  // What such ranks meet by (kernels/device_collectives.h): "host", "nccl",
  // "peer", or "auto", NCCL where it can be had. No bit depends on it.
  std::string rank_transport = "host";
  // Of a device with its own memory: most that all buffers have together; 0:
  // what is there. What CUDA itself takes is not counted.
  int64_t max_memory_bytes = 0;
  // Types that weights, and that keys and values are kept in
  // (kernels/weight_type.h).
  std::string weights = kAutoWeights;
  std::string kv_type = kAutoKvType;
  // What "auto" of kv_type needs to know: whether the matrices of the
  // checkpoint are bf16. Set by model::WithAutoChosen.
  bool bf16_checkpoint = false;
  // cuda only, and no bit depends on them: CUDA graphs of steps, kernels that
  // start while the one before them ends, and kernels that do what others would
  // after them. Off to see what they are worth.
  bool graphs = true;
  bool overlap = true;
  bool fusion = true;
  // Likewise: steps of one or few rows as one kernel where they can be.
  bool persistent = false;
  // Likewise: attention of prompts by warpgroups where they have the kernel.
  bool warpgroup_attention = false;
  // What multiplies rows of prompts: "own", as all others, or "cublas"
  // (kernels/prompt_products.h), of cuda only; and cublasLt's file. Empty: the
  // machine's.
  std::string prefill = kOwnPrefill;
  std::string cublas_library;
};

// Of `prefill`. INVALID_ARGUMENT: another name, or "cublas" without the backend
// or weights that it needs.
absl::Status CheckPrefill(const BackendOptions& options);

// INVALID_ARGUMENT for an unknown kind, weight type, KV type, core or device,
// for several devices, and as of CheckPrefill;
// UNIMPLEMENTED for a backend that this build lacks, or weights that the
// backend lacks; FAILED_PRECONDITION with CUDA's own message where there is no
// GPU or no driver, and where cublasLt is asked for and missing;
// RESOURCE_EXHAUSTED.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const BackendOptions& options);

// The kinds that this build has, by name: those that CreateBackend does not
// call missing. Each runs every model family.
std::vector<std::string> CompiledBackends();

// Whether backend "cpu" multiplies two pairs of bf16 at once here
// (AVX512-BF16): then "bf16a16" is faster than "bf16" from some rows on
// (docs/performance.md).
bool CpuMultipliesPairs();

}  // namespace nacre::kernels

#endif  // KERNELS_BACKEND_FACTORY_H_
