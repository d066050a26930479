// --max-connection-age: a client's connection that is too old takes no more
// calls, and cuts none. The connections of workers get old.

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/integration/processes.h"
#include "tests/integration/streams.h"
#include "tests/telemetry/samples.h"

namespace nacre::integration {
namespace {

constexpr int kTokens = 200;

std::chrono::system_clock::time_point InTwoMinutes() {
  return absl::ToChronoTime(absl::Now() + absl::Minutes(2));
}

TEST(ConnectionAgeTest, AStreamOutlivesItsConnectionsTime) {
  Processes processes({.coordinator = {"--max-connection-age=1s",
                                       // A stopped target is not lost.
                                       "--worker-timeout=10m"},
                       .workers = {"--hang-timeout=10m"}});
  ASSERT_NO_FATAL_FAILURE(processes.StartWorkers());
  Service service(processes.address(), processes.admin_address());
  const std::vector<Tokens> expected = QuietRun(service, 1, kTokens);

  const auto channel = rpc::CreateChannel(processes.address());
  const auto stub = v1::Inference::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(InTwoMinutes());
  const auto reader =
      stub->Generate(&context, StreamRequest(0, v1::METHOD_ASYNC, kTokens));
  v1::GenerateResponse response;
  Tokens streamed;
  v1::Complete complete;
  const auto read = [&] {
    if (!reader->Read(&response)) return false;
    EXPECT_EQ(response.chunk().first_index(),
              response.has_chunk() ? streamed.size() : 0);
    streamed.insert(streamed.end(), response.chunk().token_ids().begin(),
                    response.chunk().token_ids().end());
    if (response.has_complete()) complete = response.complete();
    return true;
  };
  ASSERT_TRUE(read());
  processes.Signal("target", SIGSTOP);
  // The connection takes no more calls.
  while (channel->GetState(false) == GRPC_CHANNEL_READY) {
    ASSERT_TRUE(
        channel->WaitForStateChange(GRPC_CHANNEL_READY, InTwoMinutes()));
  }
  // The channel has another one for the next.
  grpc::ClientContext next;
  next.set_deadline(InTwoMinutes());
  v1::Model model;
  const grpc::Status asked = stub->GetModel(&next, {}, &model);
  EXPECT_TRUE(asked.ok()) << asked.error_message();

  processes.Signal("target", SIGCONT);
  while (read()) {
  }
  const grpc::Status status = reader->Finish();
  // gRPC closes the connection with its last call: a client that writes at that
  // moment may miss the status, and has every message.
  EXPECT_TRUE(status.ok() ||
              status.error_code() == grpc::StatusCode::UNAVAILABLE)
      << status.error_message();
  EXPECT_EQ(streamed, expected[0]);
  EXPECT_EQ(Ids(complete), expected[0]);
  const auto samples = processes.Scrape("coordinator");
  EXPECT_EQ(telemetry::Sum(samples, "nacre_workers_lost_total"), 0);
  EXPECT_EQ(telemetry::Sum(samples, "nacre_workers", "ready"), 2);
}

}  // namespace
}  // namespace nacre::integration
