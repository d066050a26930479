#include "kernels/backend_factory.h"

#include <sched.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "common/cpu_quota.h"
#include "common/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/weight_type.h"
#ifdef NACRE_WITH_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif

namespace nacre::kernels {
namespace {

// INVALID_ARGUMENT unless this process may run on every core of `cpus` and each
// is named once, but for kAnyCpu.
absl::Status CheckCores(const std::vector<int>& cpus) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (!cpus.empty() && sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    return absl::InternalError("cannot read the cores of this process");
  }
  std::set<int> seen;
  for (const int core : cpus) {
    if (core == kAnyCpu) continue;
    if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(core, &allowed)) {
      return absl::InvalidArgumentError(
          absl::StrCat("core ", core,
                       " does not exist for this process, which "
                       "may run on ",
                       CPU_COUNT(&allowed), " cores"));
    }
    if (!seen.insert(core).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("core ", core, " is listed twice"));
    }
  }
  return absl::OkStatus();
}

bool IsBf16(WeightType type) {
  return type == WeightType::kAuto || type == WeightType::kBF16 ||
         type == WeightType::kBF16A16;
}

// Of what can be no step as one kernel, whatever the model is.
absl::Status CheckPersistent(const BackendOptions& options, WeightType weights,
                             DType kv_type) {
  if (!options.persistent) return absl::OkStatus();
  if (options.kind != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--persistent-steps needs --backend cuda, it is ", options.kind));
  }
  if (!IsBf16(weights)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--persistent-steps needs bf16 weights, --weights is ",
                     options.weights));
  }
  if (kv_type != DType::kBF16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--persistent-steps needs bf16 keys and values, --kv-type "
        "is ",
        options.kv_type,
        options.kv_type == "auto" ? ", f32 for this checkpoint" : ""));
  }
  return absl::OkStatus();
}

// Likewise what can have no attention by warpgroups.
absl::Status CheckWarpgroups(const BackendOptions& options, DType kv_type) {
  if (!options.warpgroup_attention) return absl::OkStatus();
  if (options.kind != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--warpgroup-attention needs --backend cuda, it is ", options.kind));
  }
  if (kv_type != DType::kBF16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--warpgroup-attention needs bf16 keys and values, --kv-type is ",
        options.kv_type,
        options.kv_type == "auto" ? ", f32 for this checkpoint" : ""));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPrefill(const BackendOptions& options) {
  if (options.prefill == kOwnPrefill) return absl::OkStatus();
  if (options.prefill != kCublasPrefill) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prefill is \"", options.prefill,
                     "\", expected \"own\" or \"cublas\""));
  }
  if (options.kind != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--prefill cublas needs --backend cuda, it is ", options.kind));
  }
  NACRE_ASSIGN_OR_RETURN(const WeightType type,
                         ParseWeightType(options.weights));
  if (IsBf16(type)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--prefill cublas needs bf16 weights, --weights is ", options.weights));
}

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const BackendOptions& options) {
  NACRE_ASSIGN_OR_RETURN(const WeightType weight_type,
                         ParseWeightType(options.weights));
  NACRE_ASSIGN_OR_RETURN(const absl::optional<DType> asked_kv_type,
                         ParseKvType(options.kv_type));
  const DType kv_type = asked_kv_type.value_or(
      AutoKvType(options.kind, weight_type, options.bf16_checkpoint));
  NACRE_RETURN_IF_ERROR(CheckCores(options.cpus));
  NACRE_RETURN_IF_ERROR(CheckPrefill(options));
  NACRE_RETURN_IF_ERROR(CheckPersistent(options, weight_type, kv_type));
  NACRE_RETURN_IF_ERROR(CheckWarpgroups(options, kv_type));
  const bool on_host = options.kind == "reference" || options.kind == "cpu";
  if (on_host && weight_type == WeightType::kFp8) {
    return absl::UnimplementedError(absl::StrCat(
        "the ", options.kind,
        " backend has no fp8 weights, expected \"auto\", \"f32\", \"bf16\", "
        "\"bf16a16\", \"int8\" or \"int4\""));
  }
  if (options.kind == "cuda" && kv_type == DType::kInt8) {
    return absl::UnimplementedError(
        "the cuda backend keeps no int8 keys and values, expected \"auto\", "
        "\"f32\" or \"bf16\"");
  }
  if (options.kind == "reference") {
    return std::make_unique<ReferenceBackend>(weight_type, kv_type);
  }
  if (options.kind == "cpu") {
    return std::make_unique<CpuBackend>(options.cpus, weight_type, kv_type);
  }
  if (options.kind == "cuda") {
    if (options.devices.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--device lists ", options.devices.size(),
                       " devices, which only --tensor-parallel ",
                       options.devices.size(), " can use"));
    }
#ifdef NACRE_WITH_CUDA
    CudaBackendOptions cuda;
    cuda.graphs = options.graphs;
    cuda.fusion = options.fusion;
    cuda.persistent = options.persistent;
    cuda.warpgroup_attention = options.warpgroup_attention;
    cuda.cublas_prompts = options.prefill == kCublasPrefill;
    cuda.cublas_library = options.cublas_library;
    return CreateCudaBackend(
        {options.device, options.max_memory_bytes, options.overlap},
        weight_type, kv_type, cuda);
#else
    return absl::UnimplementedError("this build has no CUDA backend");
#endif
  }
  return absl::InvalidArgumentError(
      absl::StrCat("backend is \"", options.kind,
                   "\", expected \"reference\", \"cpu\" or \"cuda\""));
}

std::vector<std::string> CompiledBackends() {
#ifdef NACRE_WITH_CUDA
  return {"cpu", "cuda", "reference"};
#else
  return {"cpu", "reference"};
#endif
}

bool CpuMultipliesPairs() { return ChooseGemmKernels().has_pair_products; }

}  // namespace nacre::kernels
