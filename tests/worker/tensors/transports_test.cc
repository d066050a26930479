#include "worker/tensors/transports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/server.h"
#include "tests/testing/raw_call.h"
#include "tests/worker/tensors/random_tensor.h"
#include "tests/worker/tensors/recording_sink.h"

namespace nacre::worker {
namespace {

class Transports : public ::testing::TestWithParam<std::string> {};

// As two processes do it: they know nothing but the interfaces.
TEST_P(Transports, WhatOneWorkerPublishesAnotherReads) {
  const TensorTransport* const transport = *FindTensorTransport(GetParam());
  const kernels::BackendOptions backend;
  if (const absl::Status lacks = transport->check(backend); !lacks.ok()) {
    // Not here: then it says so, and is not half there.
    EXPECT_THAT(lacks.code(),
                ::testing::AnyOf(absl::StatusCode::kInvalidArgument,
                                 absl::StatusCode::kFailedPrecondition));
    EXPECT_EQ(transport->make_publisher(backend).status(), lacks);
    EXPECT_EQ(transport->make_reader({}, backend).status(), lacks);
    return;
  }
  const ServedPublisher tensors = *transport->make_publisher(backend);
  ASSERT_NE(tensors.publisher, nullptr);
  std::vector<grpc::Service*> services;
  if (tensors.service != nullptr) services.push_back(tensors.service);
  const auto server = *rpc::RpcServer::Start({}, services);
  const std::unique_ptr<TensorReader> reader =
      *transport->make_reader({}, backend);
  const auto sink = std::make_shared<RecordingSink>();
  reader->Subscribe({server->address(), 5, 100, sink});
  ASSERT_TRUE(Eventually([&] { return tensors.publisher->HasReaders(5); }));
  const Tensor sent = RandomTensor(5, 3, 100);
  tensors.publisher->Publish(sent);
  const ReceivedTensor received = sink->AwaitTensor();
  EXPECT_EQ(received.tensor.tag, sent.tag);
  EXPECT_EQ(ValuesOf(received.tensor), ValuesOf(sent));

  tensors.publisher->EndReaders(absl::UnavailableError("stopping"));
  EXPECT_EQ(sink->AwaitLoss().second, absl::UnavailableError("stopping"));
  server->Shutdown(absl::Seconds(10));
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const TensorTransport& transport : TensorTransports()) {
    names.emplace_back(transport.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Transports, ::testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

// A GPU's backend on a machine without one, and one that has no GPU.
TEST(NcclTransport, SaysWhatItLacks) {
  const TensorTransport* const nccl = *FindTensorTransport("nccl");
  kernels::BackendOptions backend;
  for (const char* const kind : {"cpu", "reference"}) {
    backend.kind = kind;
    EXPECT_EQ(
        nccl->check(backend),
        absl::InvalidArgumentError(absl::StrCat(
            "--tensor-transport nccl needs --backend cuda, it is ", kind)));
  }
  backend.kind = "cuda";
  backend.device = 1 << 20;
  const absl::Status lacks = nccl->check(backend);
  EXPECT_EQ(lacks.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(lacks.message()),
      ::testing::AnyOf(::testing::HasSubstr("nccl: this build has no NCCL"),
                       ::testing::HasSubstr("nccl: NCCL needs a GPU")));
}

TEST(NcclTransport, IsNotForStepsThatNeedTheWholeDevice) {
  const TensorTransport* const nccl = *FindTensorTransport("nccl");
  kernels::BackendOptions backend;
  backend.kind = "cuda";
  backend.persistent = true;
  const absl::Status status = nccl->check(backend);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      ::testing::HasSubstr("and --persistent-steps exclude each other"));
}

TEST(FindTensorTransport, KnowsEachByItsNameAndRefusesOthers) {
  for (const TensorTransport& transport : TensorTransports()) {
    EXPECT_EQ(*FindTensorTransport(transport.name), &transport);
  }
  const absl::Status unknown = FindTensorTransport("pigeon").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), "not one of: grpc, nccl");
}

}  // namespace
}  // namespace nacre::worker
