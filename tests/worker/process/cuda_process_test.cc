// A target worker whose device breaks tells all and ends. The real
// program, on the emulated device.

#include <gmock/gmock.h>
#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/rpc/channel.h"
#include "tests/testing/health_check.h"
#include "tests/testing/tiny_checkpoint.h"
#include "tests/worker/worker_service.h"

namespace nacre::worker {
namespace {

using google::protobuf::StringValue;
using google::protobuf::UInt32Value;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// grpc.health.v1.Health/Watch (health_check.h says whose messages these are).
class HealthWatch : public grpc::ClientBidiReactor<StringValue, UInt32Value> {
 public:
  explicit HealthWatch(const std::string& address)
      : stub_(rpc::CreateChannel(address)) {
    stub_.PrepareBidiStreamingCall(&context_, "/grpc.health.v1.Health/Watch",
                                   grpc::StubOptions(), this);
    StartWriteLast(&service_, grpc::WriteOptions());
    StartRead(&state_);
    StartCall();
  }

  void AwaitFirst() {
    const absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(
        +[](HealthWatch* watch) {
          return watch->done_ || !watch->states_.empty();
        },
        this));
  }
  // All that it told until the server closed.
  std::vector<uint32_t> AwaitEnd() {
    const absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&done_));
    return states_;
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    {
      const absl::MutexLock lock(&mu_);
      states_.push_back(state_.value());
    }
    StartRead(&state_);
  }
  void OnDone(const grpc::Status&) override {
    const absl::MutexLock lock(&mu_);
    done_ = true;
  }

  grpc::TemplatedGenericStub<StringValue, UInt32Value> stub_;
  grpc::ClientContext context_;
  StringValue service_;  // "": the whole server
  UInt32Value state_;
  absl::Mutex mu_;
  std::vector<uint32_t> states_;
  bool done_ = false;
};

// A small model that the bundled tokenizer fits.
std::string WriteModel() {
  const std::string dir = nacre::testing::TestFolder("cuda_worker");
  nacre::testing::TinyCheckpoint shape;
  shape.vocab_size = 4096;
  nacre::testing::WriteTinyCheckpoint(shape, dir);
  for (const char* file : {"tokenizer.model", "tokenizer_config.json"}) {
    std::filesystem::copy_file(
        std::string(NACRE_MODELS "/draft/") + file, dir + "/" + file,
        std::filesystem::copy_options::overwrite_existing);
  }
  return dir;
}

std::vector<std::string> Args(const std::string& model) {
  return {"--model",   model,  "--coordinator",     "127.0.0.1:1",
          "--backend", "cuda", "--drain-timeout=1m"};
}

TEST(CudaProcessTest, ADeviceThatFailsEndsTheWorkerAndEverybodyIsTold) {
  std::vector<std::string> args = Args(WriteModel());
  args.push_back("--max-memory=170M");  // the emulated device is slow
  Process process(NACRE_EMULATED_WORKER, args);
  const std::string address = process.Address();
  HealthWatch health(address);
  health.AwaitFirst();
  // It stands still after 64 tokens: if the device breaks then, the second
  // session's first step shows it.
  OpenSession session(address);
  process.Signal(SIGUSR1);
  const OpenSession another(address, 2, /*await_opened=*/false);
  const grpc::Status end = session.AwaitEnd();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(end.error_message(), HasSubstr("the worker is stopping"));
  // It may be told several times.
  std::vector<uint32_t> states = health.AwaitEnd();
  states.erase(std::unique(states.begin(), states.end()), states.end());
  EXPECT_THAT(states, ElementsAre(nacre::testing::kServing,
                                  nacre::testing::kNotServing));
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.Stderr(), HasSubstr("nacre-target-worker: "));
  EXPECT_THAT(process.Stderr(), HasSubstr("emulated error"));
}

TEST(CudaProcessTest, WeightsThatDoNotFitAreOneLine) {
  std::vector<std::string> args = Args(WriteModel());
  args.push_back("--max-memory=1M");
  Process process(NACRE_EMULATED_WORKER, args);
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.Stderr(), HasSubstr("the weights need "));
  EXPECT_THAT(process.Stderr(),
              HasSubstr("0 of the limit of 1048576 are used"));
}

}  // namespace
}  // namespace nacre::worker
