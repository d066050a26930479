// What is asked of libnccl and of CUDA, on the emulated device with a libnccl
// of the tests.

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/nccl_api.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/kernels/cuda/load_nccl_of_tests.h"
#include "tests/kernels/cuda/nccl_library.h"

namespace nacre::kernels {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class CudaNcclTest : public ::testing::Test {
 protected:
  CudaNcclTest() { cuda::emulation::ResetDevice(); }
  ~CudaNcclTest() override {
    cuda::emulation::ResetDevice();
    EXPECT_EQ(state_->comms, 0);
  }

  static std::unique_ptr<NcclCollectiveApi> Open(int most_blocks = 0) {
    auto nccl = OpenNccl({.device = 0,
                          .most_blocks = most_blocks,
                          .library = NACRE_NCCL_LIBRARY});
    EXPECT_TRUE(nccl.ok()) << nccl.status();
    EXPECT_EQ((*nccl)->BindThread(), absl::OkStatus());
    return *std::move(nccl);
  }
  static void ExpectLack(const NcclOptions& options,
                         const std::string& message) {
    const absl::Status status = OpenNccl(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }

  cuda::NcclLibraryState* const state_ = cuda::LoadNcclOfTests();
};

TEST_F(CudaNcclTest, SaysWhatTheMachineLacks) {
  NcclOptions options;
  options.library = NACRE_NCCL_LIBRARY;
  options.device = 1;
  ExpectLack(options, "NCCL needs a GPU: there is no device 1, 1 are there");
  options.device = -1;
  ExpectLack(options, "there is no device -1");
  options.device = 0;
  cuda::emulation::settings.count_error = cudaErrorNoDevice;
  ExpectLack(options, "NCCL needs a GPU: no CUDA-capable device is detected");
  cuda::emulation::ResetDevice();
  options.library = "libnccl-that-there-is-not.so";
  ExpectLack(options, "no NCCL on this machine: libnccl-that-there-is-not.so");
  options.library = "libm.so.6";
  ExpectLack(options, "NCCL without ncclGetVersion: too old a one");
  options.library = NACRE_NCCL_LIBRARY;
  state_->version = NCCL_VERSION(2, 16, 5);
  ExpectLack(options,
             "is too old: version 21605, this program needs 21700 or later");
  state_->version = NCCL_VERSION(2, 17, 1);
  const auto nccl = OpenNccl(options);
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  EXPECT_EQ((*nccl)->version(), "2.17.1");
}

// Nothing of it may wait for the peer, or take the device from the engine.
TEST_F(CudaNcclTest, CommunicatorsDoNotBlock) {
  const auto nccl = Open(/*most_blocks=*/1);
  const std::string id = *nccl->GetUniqueId();
  EXPECT_EQ(id.size(), size_t{NCCL_UNIQUE_ID_BYTES});
  EXPECT_NE(*nccl->GetUniqueId(), id);
  const NcclApi::Comm other = *nccl->CommInitRank(id, 0, 2);
  EXPECT_FALSE(*nccl->CommIsIdle(other));  // it is alone
  const NcclApi::Comm comm = *nccl->CommInitRank(id, 1, 2);
  EXPECT_TRUE(*nccl->CommIsIdle(other));
  EXPECT_EQ(state_->nranks, 2);
  EXPECT_EQ(state_->rank, 1);
  EXPECT_EQ(state_->id, id);
  EXPECT_EQ(state_->config.blocking, 0);
  EXPECT_EQ(state_->config.minCTAs, 1);
  EXPECT_EQ(state_->config.maxCTAs, 1);
  state_->async_error = ncclInProgress;
  EXPECT_FALSE(*nccl->CommIsIdle(comm));
  state_->async_error = ncclSuccess;
  EXPECT_TRUE(*nccl->CommIsIdle(comm));
  nccl->CommAbort(comm);
  nccl->CommAbort(other);
  EXPECT_EQ(state_->comms, 0);
  // As many blocks as NCCL likes.
  const auto free = Open();
  free->CommAbort(*free->CommInitRank(*free->GetUniqueId(), 0, 8));
  EXPECT_EQ(state_->nranks, 8);
  EXPECT_EQ(state_->config.maxCTAs, NCCL_CONFIG_UNDEF_INT);

  const absl::Status bad = nccl->CommInitRank("short", 0, 2).status();
  EXPECT_EQ(bad,
            absl::InvalidArgumentError("an id of 5 bytes, NCCL's have 128"));
}

TEST_F(CudaNcclTest, BytesGoFromDeviceToDevice) {
  const auto nccl = Open();
  const std::string id = *nccl->GetUniqueId();
  const NcclApi::Comm first = *nccl->CommInitRank(id, 0, 2);
  const NcclApi::Comm second = *nccl->CommInitRank(id, 1, 2);
  const NcclApi::Stream stream = *nccl->StreamCreate();
  void* const from = *nccl->Malloc(64);
  void* const to = *nccl->Malloc(64);
  auto* const host = static_cast<char*>(*nccl->MallocHost(64));
  auto* const copy = static_cast<char*>(*nccl->MallocHost(64));
  const NcclApi::Event event = *nccl->EventCreate();
  std::memcpy(host, "values of a tensor", 19);
  EXPECT_EQ(nccl->CopyToDevice(host, 19, from, stream), absl::OkStatus());
  EXPECT_EQ(nccl->Send(from, 19, 1, first, stream), absl::OkStatus());
  while (!*nccl->CommIsIdle(first)) {
  }
  EXPECT_EQ(nccl->Recv(to, 19, 0, second, stream), absl::OkStatus());
  while (!*nccl->CommIsIdle(second)) {
  }
  EXPECT_EQ(nccl->CopyToHost(to, 19, copy, stream), absl::OkStatus());
  EXPECT_EQ(nccl->EventRecord(event, stream), absl::OkStatus());
  EXPECT_EQ(cuda::emulation::counts.waits, 0);
  EXPECT_FALSE(*nccl->EventIsDone(event));  // nothing has run yet
  while (!*nccl->EventIsDone(event)) {
  }
  EXPECT_STREQ(copy, "values of a tensor");
  EXPECT_EQ(cuda::emulation::counts.waits, 0);  // it was only asked
  nccl->CommAbort(first);
  nccl->CommAbort(second);
  nccl->EventDestroy(event);
  nccl->FreeHost(host);
  nccl->FreeHost(copy);
  nccl->Free(from);
  nccl->Free(to);
  nccl->StreamDestroy(stream);
  EXPECT_EQ(cuda::emulation::counts.used_bytes, 0u);
}

TEST_F(CudaNcclTest, ErrorsHaveNcclsWords) {
  const auto nccl = Open();
  const std::string id = *nccl->GetUniqueId();
  const NcclApi::Comm comm = *nccl->CommInitRank(id, 0, 2);
  state_->last_error = "socket closed";
  state_->async_error = ncclRemoteError;
  EXPECT_EQ(nccl->CommIsIdle(comm).status(),
            absl::InternalError(
                "the communicator: remote process exited: socket closed"));
  state_->last_error = "";
  state_->result = ncclSystemError;
  EXPECT_EQ(nccl->GetUniqueId().status(),
            absl::InternalError("ncclGetUniqueId: other error"));
  EXPECT_EQ(nccl->Send(nullptr, 1, 1, comm, nullptr),
            absl::InternalError("ncclSend: other error"));
  EXPECT_EQ(nccl->Recv(nullptr, 1, 1, comm, nullptr),
            absl::InternalError("ncclRecv: other error"));
  EXPECT_EQ(nccl->AllGather(nullptr, 1, nullptr, comm, nullptr),
            absl::InternalError("ncclAllGather: other error"));
  EXPECT_EQ(nccl->Broadcast(nullptr, 1, comm, nullptr),
            absl::InternalError("ncclBroadcast: other error"));
  EXPECT_EQ(nccl->GroupStart(),
            absl::InternalError("ncclGroupStart: other error"));
  // One that was begun and then failed is freed.
  EXPECT_EQ(nccl->CommInitRank(id, 1, 2).status(),
            absl::InternalError("ncclCommInitRankConfig: other error"));
  EXPECT_EQ(state_->comms, 1);
  nccl->CommAbort(comm);
}

TEST_F(CudaNcclTest, ErrorsHaveCudasWords) {
  const auto nccl = Open();
  cuda::emulation::settings.memory_bytes = 1 << 10;
  const absl::Status status = nccl->Malloc(1 << 20).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), StartsWith("cudaMalloc: out of"));
  const NcclApi::Event event = *nccl->EventCreate();
  EXPECT_TRUE(*nccl->EventIsDone(event));
  cuda::emulation::settings.fault = cudaErrorIllegalAddress;
  EXPECT_EQ(nccl->EventIsDone(event).status().code(),
            absl::StatusCode::kInternal);
  nccl->EventDestroy(event);
}

}  // namespace
}  // namespace nacre::kernels
