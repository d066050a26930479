#include "common/rpc/callback_threads.h"

#include <gtest/gtest.h>

#include <memory>

#include "absl/synchronization/notification.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_stream.h"
#include "proto/worker.grpc.pb.h"

namespace nacre::rpc {
namespace {

using Stream = ClientMessageStream<v1::DraftControl, v1::DraftEvent>;

// The last user of each channel is a call that ends on one of gRPC's threads.
// Were that channel the threads' last user too, the process would crash.
TEST(CallbackThreadsTest, OutliveChannelsThatTheirLastCallLetsGo) {
  KeepCallbackThreads();
  KeepCallbackThreads();
  for (int round = 0; round < 100; ++round) {
    auto done = std::make_shared<absl::Notification>();
    {
      const auto stub = v1::DraftWorker::NewStub(
          CreateChannel("unix:" + ::testing::TempDir() + "/nobody"));
      const auto stream = Stream::Create(
          {[](const v1::DraftEvent&) {},
           [done](const absl::Status& status) {
             EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
             done->Notify();
           }});
      stub->async()->Session(stream->context(), stream.get());
      stream->Start();
    }
    done->WaitForNotification();
  }
}

}  // namespace
}  // namespace nacre::rpc
