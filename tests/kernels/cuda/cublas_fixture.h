// The cublasLt of the tests, loaded and reset, and backends on the emulated
// device that use it.

#ifndef TESTS_KERNELS_CUDA_CUBLAS_FIXTURE_H_
#define TESTS_KERNELS_CUDA_CUBLAS_FIXTURE_H_

#include <dlfcn.h>

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "tests/kernels/cuda/cublas_library.h"
#include "tests/kernels/cuda/emulation/runtime.h"

namespace nacre::kernels::cuda {

class CublasTest : public ::testing::Test {
 protected:
  CublasTest() {
    emulation::ResetDevice();
    void* const library = dlopen(NACRE_CUBLAS_LIBRARY, RTLD_NOW);
    EXPECT_NE(library, nullptr) << dlerror();
    using Find = CublasLibraryState* (*)();
    state_ = reinterpret_cast<Find>(dlsym(library, "CublasLibrary"))();
    *state_ = CublasLibraryState();
    state_->launch = &cudaLaunchHostFunc;
  }
  ~CublasTest() override {
    emulation::ResetDevice();
    EXPECT_EQ(state_->handles, 0);
    EXPECT_EQ(state_->descriptors, 0);
  }

  // What --prefill says; empty: as without the flag.
  static BackendOptions OptionsOf(const std::string& prefill) {
    BackendOptions options;
    options.kind = "cuda";
    options.kv_type = "bf16";
    if (!prefill.empty()) options.prefill = prefill;
    options.cublas_library = NACRE_CUBLAS_LIBRARY;
    return options;
  }
  static std::unique_ptr<Backend> MakeBackend(
      const std::string& prefill = kCublasPrefill) {
    auto backend = CreateBackend(OptionsOf(prefill));
    EXPECT_TRUE(backend.ok()) << backend.status();
    return *std::move(backend);
  }

  CublasLibraryState* state_ = nullptr;
};

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_CUBLAS_FIXTURE_H_
