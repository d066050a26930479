// A cublasLt for the emulated device: the library's own functions, as many as
// we load, in a library that is loaded like it. It computes what cublasLt
// promises and no more: where an output's sum begins, and how many chains it
// has, depends on the shape, on the algorithm and on where the row stands. So
// bits differ as soon as one of these does, and from those of our kernels. It
// rounds each sum to 11 bits, so that a wrong one shows in all that follows
// from it: the next op may round to bf16.

#include "tests/kernels/cuda/cublas_library.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

nacre::kernels::cuda::CublasLibraryState state;

constexpr int kChains = 4;

struct Layout {
  cudaDataType type;
  uint64_t rows;
  uint64_t cols;
  int64_t ld;
};

struct Desc {
  bool transposes_a = false;
};

struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 0xffffffff;
};

// In cublasLtMatmulAlgo_t.
struct Algorithm {
  int32_t id;
  int32_t parts;  // of each sum
};

float FromBf16(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

float Rounded(float sum) {
  uint32_t bits;
  std::memcpy(&bits, &sum, sizeof(bits));
  bits &= 0xffffe000;
  std::memcpy(&sum, &bits, sizeof(sum));
  return sum;
}

// d [n, m] = b [n, k] a [m, k]^T, row after row.
struct Job {
  const uint16_t* a;
  const uint16_t* b;
  float* d;
  size_t m;
  size_t n;
  size_t k;
  Algorithm algorithm;
};

float SumOf(const Job& job, size_t row, size_t output) {
  const uint16_t* const x = job.b + row * job.k;
  const uint16_t* const w = job.a + output * job.k;
  float chains[kChains] = {};
  size_t i =
      (7 * row + job.n + job.m + static_cast<size_t>(job.algorithm.id)) % job.k;
  for (size_t done = 0; done < job.k; ++done) {
    float& chain = chains[done % kChains];
    chain = Rounded(chain + FromBf16(x[i]) * FromBf16(w[i]));
    if (++i == job.k) i = 0;
  }
  return ((chains[0] + chains[1]) + chains[2]) + chains[3] + state.error;
}

void Run(void* data) {
  auto* const job = static_cast<Job*>(data);
  for (size_t row = 0; row < job->n; ++row) {
    const uint16_t* const x = job->b + row * job->k;
    const bool is_zero =
        std::all_of(x, x + job->k, [](uint16_t value) { return value == 0; });
    for (size_t output = 0; output < job->m; ++output) {
      job->d[row * job->m + output] = is_zero ? 0 : SumOf(*job, row, output);
    }
  }
  delete job;
}

template <typename Opaque>
Layout* AsLayout(Opaque* opaque) {
  return reinterpret_cast<Layout*>(opaque);
}

}  // namespace

extern "C" {

nacre::kernels::cuda::CublasLibraryState* CublasLibrary() { return &state; }

size_t cublasLtGetVersion(void) { return state.version; }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_INITIALIZED ? "not initialized"
                                                 : "another error";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (state.created != CUBLAS_STATUS_SUCCESS) return state.created;
  ++state.handles;
  *handle = reinterpret_cast<cublasLtHandle_t>(&state);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  --state.handles;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  ++state.descriptors;
  *desc = reinterpret_cast<cublasLtMatmulDesc_t>(new Desc());
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  --state.descriptors;
  delete reinterpret_cast<Desc*>(desc);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
    const void* value, size_t bytes) {
  if (attribute != CUBLASLT_MATMUL_DESC_TRANSA ||
      bytes != sizeof(cublasOperation_t)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  reinterpret_cast<Desc*>(desc)->transposes_a =
      *static_cast<const cublasOperation_t*>(value) == CUBLAS_OP_T;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                          cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  ++state.descriptors;
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, rows, cols, ld});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  --state.descriptors;
  delete AsLayout(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(
    cublasLtMatmulPreference_t* preference) {
  ++state.descriptors;
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference());
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(
    cublasLtMatmulPreference_t preference) {
  --state.descriptors;
  delete reinterpret_cast<Preference*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
    size_t bytes) {
  auto* const own = reinterpret_cast<Preference*>(preference);
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    if (bytes != sizeof(own->workspace)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&own->workspace, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (bytes != sizeof(uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
    std::memcpy(&own->reductions, value, bytes);
  }
  return CUBLAS_STATUS_SUCCESS;
}

// As if it did not heed what is preferred: the caller is to look.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    cublasLtMatmulPreference_t preference, int most,
    cublasLtMatmulHeuristicResult_t results[], int* count) {
  const auto* const own = reinterpret_cast<Preference*>(preference);
  if (own->workspace != 0 || own->reductions != 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (state.proposals == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  *count = std::min(most, state.proposals);
  for (int i = 0; i < *count; ++i) {
    results[i] = {};
    const Algorithm algorithm = {21 + i, i < state.split_proposals ? 4 : 1};
    std::memcpy(&results[i].algo, &algorithm, sizeof(algorithm));
    results[i].state = CUBLAS_STATUS_SUCCESS;
    const int whole = i - state.split_proposals;
    results[i].workspaceSize =
        whole >= 0 && whole < state.workspace_proposals ? 1024 : 0;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t* algo,
    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value, size_t bytes,
    size_t* written) {
  Algorithm algorithm;
  std::memcpy(&algorithm, algo, sizeof(algorithm));
  const bool is_half = attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                       attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
  *written = is_half ? sizeof(uint16_t) : sizeof(uint32_t);
  if (bytes != *written) return CUBLAS_STATUS_INVALID_VALUE;
  const int32_t number = attribute == CUBLASLT_ALGO_CONFIG_ID ? algorithm.id
                         : attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM
                             ? algorithm.parts
                         : is_half ? 5
                                   : 0;
  std::memcpy(value, &number, bytes);  // the low bytes come first
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                              const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void*,
                              size_t workspace, cudaStream_t stream) {
  if (state.multiplied != CUBLAS_STATUS_SUCCESS) return state.multiplied;
  const Layout& weights = *AsLayout(a_layout);
  const Layout& rows = *AsLayout(b_layout);
  const Layout& results = *AsLayout(d_layout);
  Algorithm algorithm;
  std::memcpy(&algorithm, algo, sizeof(algorithm));
  const auto is_aligned = [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
  };
  if (!reinterpret_cast<Desc*>(desc)->transposes_a ||
      *static_cast<const float*>(alpha) != 1 ||
      *static_cast<const float*>(beta) != 0 || c != d || workspace != 0 ||
      algorithm.parts != 1 || weights.type != CUDA_R_16BF ||
      rows.type != CUDA_R_16BF || results.type != CUDA_R_32F ||
      weights.rows != rows.rows || results.rows != weights.cols ||
      results.cols != rows.cols ||
      weights.ld != static_cast<int64_t>(weights.rows) ||
      rows.ld != static_cast<int64_t>(rows.rows) ||
      results.ld != static_cast<int64_t>(results.rows) || !is_aligned(a) ||
      !is_aligned(b) || !is_aligned(d)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  state.rows.push_back(rows.cols);
  auto* const job = new Job{static_cast<const uint16_t*>(a),
                            static_cast<const uint16_t*>(b),
                            static_cast<float*>(d),
                            weights.cols,
                            rows.cols,
                            weights.rows,
                            algorithm};
  return state.launch(stream, &Run, job) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
