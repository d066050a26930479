#include "kernels/backend_factory.h"

#include <sched.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/cpu_quota.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

absl::Status CreateStatus(const BackendOptions& options) {
  return CreateBackend(options).status();
}

TEST(CreateBackendTest, MakesTheKindAsked) {
  EXPECT_EQ(MakeBackend("reference")->numerics_id(), "reference-v2");
  EXPECT_EQ(MakeBackend("reference", "bf16")->numerics_id(),
            "reference-bf16-v2");
  EXPECT_THAT(MakeBackend("cpu")->numerics_id(), HasSubstr("cpu-"));
  EXPECT_THAT(MakeBackend("cpu")->description(), HasSubstr("1 unpinned"));
  EXPECT_THAT(MakeBackend("cpu", "auto", AllowedCores(1))->description(),
              HasSubstr("1 thread on cores"));
}

TEST(CreateBackendTest, RefusesAnUnknownKind) {
  BackendOptions options;
  options.kind = "tpu";
  EXPECT_EQ(CreateStatus(options).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(CreateStatus(options).message()),
              HasSubstr("\"tpu\""));
}

TEST(CreateBackendTest, NamesTheTypeOfKeysAndValues) {
  EXPECT_EQ(MakeBackend("reference", "auto", {}, "bf16")->numerics_id(),
            "reference-kvbf16-v2");
  EXPECT_EQ(MakeBackend("reference", "auto", {}, "int8")->numerics_id(),
            "reference-kvint8-v2");
  EXPECT_EQ(MakeBackend("reference")->numerics_id(), "reference-v2");
  for (const char* kind : {"cpu", "reference"}) {
    EXPECT_EQ(MakeBackend(kind)->kv_type(), DType::kF32);
    EXPECT_EQ(MakeBackend(kind, "auto", {}, "bf16")->kv_type(), DType::kBF16);
    EXPECT_EQ(MakeBackend(kind, "auto", {}, "int8")->kv_type(), DType::kInt8);
    BackendOptions options = {.kind = kind, .bf16_checkpoint = true};
    EXPECT_EQ(options.kv_type, "auto");
    EXPECT_EQ((*CreateBackend(options))->kv_type(), DType::kF32);
  }
}

TEST(CreateBackendTest, RefusesAnUnknownKvType) {
  BackendOptions options;
  for (const char* type : {"f16", "", "f8"}) {
    options.kv_type = type;
    EXPECT_EQ(CreateStatus(options).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(CreateStatus(options).message()),
                HasSubstr(std::string("kv-type is \"") + type +
                          "\", expected \"auto\", \"f32\", \"bf16\" or "
                          "\"int8\""));
  }
}

TEST(CreateBackendTest, CudaKeepsNoKeysInIntegers) {
  EXPECT_EQ(CreateStatus({.kind = "cuda", .kv_type = "int8"}),
            absl::UnimplementedError("the cuda backend keeps no int8 keys and "
                                     "values, expected \"auto\", \"f32\" or "
                                     "\"bf16\""));
}

TEST(CreateBackendTest, PromptsByCublasNeedCudaAndBf16) {
  for (const char* kind : {"cpu", "reference"}) {
    EXPECT_EQ(CreateStatus({.kind = kind, .prefill = "cublas"}),
              absl::InvalidArgumentError(absl::StrCat(
                  "--prefill cublas needs --backend cuda, it is ", kind)));
    EXPECT_TRUE(CreateStatus({.kind = kind, .prefill = "own"}).ok());
  }
  EXPECT_EQ(CreateStatus({.prefill = "mkl"}),
            absl::InvalidArgumentError("--prefill is \"mkl\", expected "
                                       "\"own\" or \"cublas\""));
  for (const char* weights : {"f32", "int8", "int4", "fp8"}) {
    EXPECT_EQ(
        CreateStatus({.kind = "cuda", .weights = weights, .prefill = "cublas"}),
        absl::InvalidArgumentError(absl::StrCat(
            "--prefill cublas needs bf16 weights, --weights is ", weights)));
  }
  for (const char* weights : {"auto", "bf16", "bf16a16"}) {
    EXPECT_TRUE(
        CheckPrefill({.kind = "cuda", .weights = weights, .prefill = "cublas"})
            .ok());
  }
}

TEST(CreateBackendTest, StepsAsOneKernelNeedCudaAndBf16) {
  for (const char* kind : {"cpu", "reference"}) {
    EXPECT_EQ(CreateStatus({.kind = kind, .persistent = true}),
              absl::InvalidArgumentError(absl::StrCat(
                  "--persistent-steps needs --backend cuda, it is ", kind)));
  }
  for (const char* weights : {"f32", "int8", "int4", "fp8"}) {
    EXPECT_EQ(
        CreateStatus({.kind = "cuda", .weights = weights, .persistent = true}),
        absl::InvalidArgumentError(absl::StrCat(
            "--persistent-steps needs bf16 weights, --weights is ", weights)));
  }
  EXPECT_EQ(
      CreateStatus({.kind = "cuda", .kv_type = "f32", .persistent = true}),
      absl::InvalidArgumentError("--persistent-steps needs bf16 keys and "
                                 "values, --kv-type is f32"));
  EXPECT_EQ(CreateStatus({.kind = "cuda",
                          .weights = "auto",
                          .kv_type = "auto",
                          .bf16_checkpoint = false,
                          .persistent = true}),
            absl::InvalidArgumentError(
                "--persistent-steps needs bf16 keys and values, --kv-type is "
                "auto, f32 for this checkpoint"));
}

TEST(CreateBackendTest, AttentionByWarpgroupsNeedsCudaAndBf16) {
  for (const char* kind : {"cpu", "reference"}) {
    EXPECT_EQ(CreateStatus({.kind = kind, .warpgroup_attention = true}),
              absl::InvalidArgumentError(absl::StrCat(
                  "--warpgroup-attention needs --backend cuda, it is ", kind)));
  }
  EXPECT_EQ(
      CreateStatus(
          {.kind = "cuda", .kv_type = "f32", .warpgroup_attention = true}),
      absl::InvalidArgumentError("--warpgroup-attention needs bf16 keys "
                                 "and values, --kv-type is f32"));
  EXPECT_EQ(CreateStatus({.kind = "cuda",
                          .weights = "auto",
                          .kv_type = "auto",
                          .bf16_checkpoint = false,
                          .warpgroup_attention = true}),
            absl::InvalidArgumentError(
                "--warpgroup-attention needs bf16 keys and values, --kv-type "
                "is auto, f32 for this checkpoint"));
}

TEST(CreateBackendTest, RefusesAnUnknownWeightType) {
  BackendOptions options;
  options.weights = "int3";
  for (const char* kind : {"cpu", "reference"}) {
    options.kind = kind;
    EXPECT_EQ(CreateStatus(options).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(CreateStatus(options).message()),
        HasSubstr(
            "\"int3\", expected \"auto\", \"bf16\", \"bf16a16\", \"f32\", "
            "\"int8\", \"int4\" or \"fp8\""));
  }
}

TEST(CreateBackendTest, RefusesACoreThatTheProcessMayNotUse) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  int missing = CPU_SETSIZE - 1;
  while (missing > 0 && CPU_ISSET(missing, &allowed)) --missing;
  for (const int core : {missing, -1, CPU_SETSIZE}) {
    BackendOptions options;
    options.cpus = AllowedCores(1);
    options.cpus.push_back(core);
    EXPECT_EQ(CreateStatus(options).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(CreateStatus(options).message()),
                HasSubstr("core " + std::to_string(core) + " "));
  }
}

TEST(CreateBackendTest, TakesThreadsOfAnyCore) {
  BackendOptions options;
  options.cpus = {kAnyCpu, kAnyCpu};
  EXPECT_TRUE(CreateStatus(options).ok()) << CreateStatus(options);
}

TEST(CreateBackendTest, RefusesACoreListedTwice) {
  BackendOptions options;
  options.cpus = AllowedCores(1);
  options.cpus.push_back(options.cpus[0]);
  EXPECT_THAT(std::string(CreateStatus(options).message()),
              HasSubstr("listed twice"));
}

TEST(CreateBackendTest, SaysWhyThereIsNoSuchGpu) {
  BackendOptions options;
  options.kind = "cuda";
  options.device = 999;
  const absl::Status status = CreateStatus(options);
#ifdef NACRE_WITH_CUDA
  // The second: of a machine that has GPUs.
  EXPECT_THAT(status.code(), AnyOf(absl::StatusCode::kFailedPrecondition,
                                   absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA device 999"));
#else
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
#endif
}

// Whether or not the machine has a GPU.
TEST(CompiledBackendsTest, AreThoseThatCreateBackendDoesNotCallMissing) {
  std::vector<std::string> expected;
  for (const std::string kind : {"cpu", "cuda", "reference"}) {
    if (CreateStatus({.kind = kind}).code() !=
        absl::StatusCode::kUnimplemented) {
      expected.push_back(kind);
    }
  }
  EXPECT_EQ(CompiledBackends(), expected);
}

TEST(CreateBackendTest, RefusesFp8WeightsOffTheGpu) {
  BackendOptions options;
  options.weights = "fp8";
  for (const char* kind : {"cpu", "reference"}) {
    options.kind = kind;
    EXPECT_EQ(CreateStatus(options).code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(
        std::string(CreateStatus(options).message()),
        HasSubstr(std::string("the ") + kind +
                  " backend has no fp8 weights, expected \"auto\", "
                  "\"f32\", \"bf16\", \"bf16a16\", \"int8\" or \"int4\""));
  }
  options.kind = "tpu";
  EXPECT_EQ(CreateStatus(options).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace nacre::kernels
