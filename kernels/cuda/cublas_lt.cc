#include "kernels/cuda/cublas_lt.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cuda/cuda_library.h"

namespace nacre::kernels::cuda {
namespace {

// Proposals of the library that are looked at.
constexpr int kProposals = 16;
// What it may count on of all pointers.
constexpr uint32_t kPointerAlignment = 16;

struct Functions {
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) propose = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) config_get = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
};

template <typename Function>
absl::Status LoadFunction(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cublasLt without ", name, ": too old a one"));
}

absl::StatusOr<Functions> LoadFunctions(const std::string& file) {
  std::string error;
  void* library = nullptr;
  if (file.empty()) {
    library = OpenCudaLibrary("cublasLt", &error);
  } else {
    library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) error = dlerror();
  }
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("no cuBLAS on this machine: ", error));
  }
  Functions f;
  const auto load = [library](const char* name, auto* function) {
    return LoadFunction(library, name, function);
  };
  NACRE_RETURN_IF_ERROR(load("cublasLtGetVersion", &f.version));
  NACRE_RETURN_IF_ERROR(load("cublasLtGetStatusString", &f.status_string));
  NACRE_RETURN_IF_ERROR(load("cublasLtCreate", &f.create));
  NACRE_RETURN_IF_ERROR(load("cublasLtDestroy", &f.destroy));
  NACRE_RETURN_IF_ERROR(load("cublasLtMatmulDescCreate", &f.desc_create));
  NACRE_RETURN_IF_ERROR(load("cublasLtMatmulDescDestroy", &f.desc_destroy));
  NACRE_RETURN_IF_ERROR(load("cublasLtMatmulDescSetAttribute", &f.desc_set));
  NACRE_RETURN_IF_ERROR(load("cublasLtMatrixLayoutCreate", &f.layout_create));
  NACRE_RETURN_IF_ERROR(load("cublasLtMatrixLayoutDestroy", &f.layout_destroy));
  NACRE_RETURN_IF_ERROR(
      load("cublasLtMatmulPreferenceCreate", &f.preference_create));
  NACRE_RETURN_IF_ERROR(
      load("cublasLtMatmulPreferenceDestroy", &f.preference_destroy));
  NACRE_RETURN_IF_ERROR(
      load("cublasLtMatmulPreferenceSetAttribute", &f.preference_set));
  NACRE_RETURN_IF_ERROR(load("cublasLtMatmulAlgoGetHeuristic", &f.propose));
  NACRE_RETURN_IF_ERROR(
      load("cublasLtMatmulAlgoConfigGetAttribute", &f.config_get));
  NACRE_RETURN_IF_ERROR(load("cublasLtMatmul", &f.matmul));
  return f;
}

// Of one machine's library; outlives what it has made.
struct Library {
  Functions f;
  cublasLtHandle_t handle = nullptr;

  ~Library() {
    if (handle != nullptr) f.destroy(handle);
  }
  absl::Status Check(cublasStatus_t status, const char* what) const {
    if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat(what, ": ", f.status_string(status)));
  }
};

class LtProduct final : public CublasLt::Product {
 public:
  explicit LtProduct(std::shared_ptr<const Library> library)
      : library_(std::move(library)) {}
  ~LtProduct() override {
    const Functions& f = library_->f;
    for (const cublasLtMatrixLayout_t layout : {w_, x_, y_}) {
      if (layout != nullptr) f.layout_destroy(layout);
    }
    if (desc_ != nullptr) f.desc_destroy(desc_);
  }
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;

  // The library counts columns first: of W^T, x and y it sees the transposed.
  absl::Status Describe(const CublasLt::Shape& shape) {
    const Functions& f = library_->f;
    NACRE_RETURN_IF_ERROR(
        Check(f.desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
              "cublasLtMatmulDescCreate"));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    NACRE_RETURN_IF_ERROR(Check(f.desc_set(desc_, CUBLASLT_MATMUL_DESC_TRANSA,
                                           &transposed, sizeof(transposed)),
                                "cublasLtMatmulDescSetAttribute"));
    const auto inputs = static_cast<uint64_t>(shape.inputs);
    const auto outputs = static_cast<uint64_t>(shape.outputs);
    const auto rows = static_cast<uint64_t>(shape.rows);
    NACRE_RETURN_IF_ERROR(Layout(CUDA_R_16BF, inputs, outputs, &w_));
    NACRE_RETURN_IF_ERROR(Layout(CUDA_R_16BF, inputs, rows, &x_));
    return Layout(CUDA_R_32F, outputs, rows, &y_);
  }

  absl::Status Choose() {
    cublasLtMatmulHeuristicResult_t proposed[kProposals] = {};
    int count = 0;
    NACRE_RETURN_IF_ERROR(Propose(proposed, &count));
    for (int i = 0; i < std::min(count, kProposals); ++i) {
      if (proposed[i].state != CUBLAS_STATUS_SUCCESS ||
          proposed[i].workspaceSize != 0 ||
          Config(proposed[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1 ||
          Config(proposed[i].algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) !=
              CUBLASLT_REDUCTION_SCHEME_NONE) {
        continue;
      }
      algo_ = proposed[i].algo;
      for (const auto attribute :
           {CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_TILE_ID,
            CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
            CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, CUBLASLT_ALGO_CONFIG_STAGES_ID,
            CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID,
            CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID}) {
        absl::StrAppend(&algorithm_, Config(algo_, attribute), ".");
      }
      return absl::OkStatus();
    }
    return absl::UnimplementedError(
        absl::StrCat("cublasLt proposes ", count,
                     " algorithms, none that sums an output in one place"));
  }

  absl::Status Multiply(const void* x, const void* w, float* y,
                        cudaStream_t stream) const override {
    const float one = 1;
    const float zero = 0;
    return Check(
        library_->f.matmul(library_->handle, desc_, &one, w, w_, x, x_, &zero,
                           y, y_, y, y_, &algo_, nullptr, 0, stream),
        "cublasLtMatmul");
  }
  const std::string& algorithm() const override { return algorithm_; }

 private:
  absl::Status Check(cublasStatus_t status, const char* what) const {
    return library_->Check(status, what);
  }

  absl::Status Layout(cudaDataType type, uint64_t rows, uint64_t cols,
                      cublasLtMatrixLayout_t* layout) const {
    return Check(library_->f.layout_create(layout, type, rows, cols,
                                           static_cast<int64_t>(rows)),
                 "cublasLtMatrixLayoutCreate");
  }

  // The best first, without parts of sums that are added elsewhere.
  absl::Status Propose(cublasLtMatmulHeuristicResult_t* proposed,
                       int* count) const {
    const Functions& f = library_->f;
    cublasLtMatmulPreference_t preference = nullptr;
    NACRE_RETURN_IF_ERROR(Check(f.preference_create(&preference),
                                "cublasLtMatmulPreferenceCreate"));
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute,
                         const auto& value) {
      if (status != CUBLAS_STATUS_SUCCESS) return;
      status = f.preference_set(preference, attribute, &value, sizeof(value));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{0});
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kPointerAlignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kPointerAlignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kPointerAlignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kPointerAlignment);
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = f.propose(library_->handle, desc_, w_, x_, y_, y_, preference,
                         kProposals, proposed, count);
    }
    f.preference_destroy(preference);
    // It says so where it knows no algorithm.
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
      *count = 0;
      return absl::OkStatus();
    }
    return Check(status, "cublasLtMatmulAlgoGetHeuristic");
  }

  // What an older library does not know is 0.
  int Config(const cublasLtMatmulAlgo_t& algo,
             cublasLtMatmulAlgoConfigAttributes_t attribute) const {
    // Some attributes have 2 bytes.
    uint32_t value = 0;
    size_t written = 0;
    const cublasStatus_t status = library_->f.config_get(
        &algo, attribute, &value, sizeof(value), &written);
    if (status == CUBLAS_STATUS_SUCCESS) return static_cast<int>(value);
    uint16_t half = 0;
    if (library_->f.config_get(&algo, attribute, &half, sizeof(half),
                               &written) != CUBLAS_STATUS_SUCCESS) {
      return 0;
    }
    return half;
  }

  const std::shared_ptr<const Library> library_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr;
  cublasLtMatrixLayout_t x_ = nullptr;
  cublasLtMatrixLayout_t y_ = nullptr;
  cublasLtMatmulAlgo_t algo_ = {};
  std::string algorithm_;
};

class LoadedCublasLt final : public CublasLt {
 public:
  explicit LoadedCublasLt(std::shared_ptr<const Library> library)
      : library_(std::move(library)) {}

  int64_t version() const override {
    return static_cast<int64_t>(library_->f.version());
  }

  absl::StatusOr<std::unique_ptr<Product>> Plan(const Shape& shape) override {
    auto product = std::make_unique<LtProduct>(library_);
    NACRE_RETURN_IF_ERROR(product->Describe(shape));
    NACRE_RETURN_IF_ERROR(product->Choose());
    return product;
  }

 private:
  const std::shared_ptr<const Library> library_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CublasLt>> OpenCublasLt(
    const std::string& library) {
  auto loaded = std::make_shared<Library>();
  NACRE_ASSIGN_OR_RETURN(loaded->f, LoadFunctions(library));
  const absl::Status created =
      loaded->Check(loaded->f.create(&loaded->handle), "cublasLtCreate");
  if (!created.ok()) return absl::FailedPreconditionError(created.message());
  return std::make_unique<LoadedCublasLt>(std::move(loaded));
}

}  // namespace nacre::kernels::cuda
