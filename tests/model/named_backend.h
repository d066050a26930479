// The backends that tests of whole models run on, by name: a backend, or a
// backend and the type it keeps weights in, as in cpu_int8, or keys and values,
// as in cpu_kvbf16 and cpu_kvint8.

#ifndef TESTS_MODEL_NAMED_BACKEND_H_
#define TESTS_MODEL_NAMED_BACKEND_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"

#ifndef NACRE_MODEL_BACKENDS
#define NACRE_MODEL_BACKENDS                                 \
  "reference", "cpu", "cpu_bf16a16", "cpu_int8", "cpu_int4", \
      "reference_kvbf16", "cpu_kvbf16", "reference_kvint8", "cpu_kvint8"
#endif

namespace nacre::model {

// Null: there is no GPU. (The emulated one is always there.)
inline std::unique_ptr<kernels::Backend> NamedBackend(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '_');
  kernels::BackendOptions options;
  options.kind = parts[0];
  if (parts.size() > 1 && absl::StartsWith(parts[1], "kv")) {
    options.kv_type = parts[1].substr(2);
  } else if (parts.size() > 1) {
    options.weights = parts[1];
  }
  auto backend = kernels::CreateBackend(options);
#ifndef NACRE_EMULATED_CUDA
  if (options.kind == "cuda" && absl::IsFailedPrecondition(backend.status())) {
    return nullptr;
  }
#endif
  return *std::move(backend);
}

// Of drafts over what a target has computed.
#ifndef NACRE_DRAFT_BACKENDS
#define NACRE_DRAFT_BACKENDS "reference", "cpu", "cpu_kvbf16"
#define NACRE_HEAD_BACKENDS "reference", "cpu", "cpu_int8"
#define NACRE_CACHE_BACKENDS "reference", "cpu", "cpu_kvbf16", "cpu_kvint8"
#endif

// Tests of drafts by a backend's name, skipped where it has no GPU.
class DraftBackendTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (NamedBackend(GetParam()) == nullptr) GTEST_SKIP() << "no CUDA device";
  }
};

inline std::string NameOfBackend(
    const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}

// Of their logits, relative to the largest. Weights, inputs of products, or
// keys and values have 8 bits of mantissa, in three steps after each other; all
// of them, and weights of attention, in the last.
inline float DraftTolerance(const std::string& name) {
  if (name == "cuda_kvbf16") return 0.1f;
  return absl::StrContains(name, "bf16") ? 0.05f : 1e-3f;
}

// Of logits, relative to the largest.
inline float LogitTolerance(const std::string& name) {
  return name == "cpu_int4"                  ? 0.5f
         : name == "cpu_int8"                ? 0.05f
         : name == "cpu_bf16a16"             ? 0.02f
         : name == "cuda_int8"               ? 0.05f
         : name == "cuda_fp8"                ? 0.2f
         : name == "cuda"                    ? 0.02f  // bf16 activations
         : name == "cuda_bf16"               ? 0.02f
         : name == "cuda_kvbf16"             ? 0.02f
         : absl::StrContains(name, "kvbf16") ? 0.01f
         : absl::StrContains(name, "kvint8") ? 0.03f
                                             : 1e-3f;
}

}  // namespace nacre::model

#endif  // TESTS_MODEL_NAMED_BACKEND_H_
