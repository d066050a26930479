#include "worker/tensors/transports.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/rpc/server.h"
#include "tests/testing/raw_call.h"
#include "tests/worker/tensors/random_tensor.h"
#include "tests/worker/tensors/recording_sink.h"

namespace nacre::worker {
namespace {

// As two processes do it: they know nothing but the interfaces.
TEST(Transports, WhatOneWorkerPublishesAnotherReads) {
  const ServedPublisher tensors = MakeTensorPublisher();
  ASSERT_NE(tensors.publisher, nullptr);
  ASSERT_NE(tensors.service, nullptr);
  const auto server = *rpc::RpcServer::Start({}, {tensors.service});
  const std::unique_ptr<TensorReader> reader = MakeTensorReader({});
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

}  // namespace
}  // namespace nacre::worker
