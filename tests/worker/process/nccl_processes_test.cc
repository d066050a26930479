// Two processes on one GPU that meet by NCCL, which takes each of them for a
// machine of its own (NCCL_HOSTID): it refuses two ranks on one GPU otherwise.
// Values then go over sockets, slowly, so this shows what is right and not what
// is fast. Tensors have gRPC's bits, and a model on two nodes has one rank's.
//
// On a GPU with the machine's NCCL, and on the emulated device with the
// libnccl of the tests, whose ranks are processes here. The second process is
// this program again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/rpc/server.h"
#include "common/status_macros.h"
#include "kernels/backend_factory.h"
#include "kernels/nccl_api.h"
#include "tests/model/rank_sessions.h"
#include "tests/testing/free_address.h"
#include "tests/testing/tiny_checkpoint.h"
#include "tests/worker/tensors/row_ends.h"
#include "tests/worker/worker_service.h"
#include "worker/process/load.h"
#include "worker/process/nodes.h"
#ifdef NACRE_EMULATED_CUDA
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/kernels/cuda/load_nccl_of_tests.h"
#endif

namespace nacre::worker {
namespace {

using nacre::testing::TinyCheckpoint;
using ::testing::HasSubstr;

constexpr char kProgram[] = "/proc/self/exe";
constexpr char kReads[] = "--read";
constexpr char kFollows[] = "--follow";

// Of both ranks together.
#ifdef NACRE_EMULATED_CUDA
constexpr int64_t kMemoryBytes = int64_t{400} << 20;
#else
constexpr int64_t kMemoryBytes = int64_t{6} << 30;
#endif

// Before the first call of NCCL in a process.
void SetHost(const char* host) {
  setenv("NCCL_HOSTID", host, /*overwrite=*/1);
  // Both are on this machine.
  setenv("NCCL_SOCKET_IFNAME", "lo", /*overwrite=*/0);
  setenv("NCCL_NET", "Socket", /*overwrite=*/0);
#ifdef NACRE_EMULATED_CUDA
  kernels::cuda::LoadNcclOfTests();
#endif
}

// Two ranks for sockets and one GPU: none of it is to be in a hurry.
std::unique_ptr<NcclLinks> PatientLinks() {
  auto api = kernels::OpenNccl({.device = 0, .most_blocks = 1});
  EXPECT_TRUE(api.ok()) << api.status();
  return std::make_unique<NcclLinks>(
      *std::move(api),
      NcclLinks::Options{absl::Seconds(60), absl::Seconds(60)});
}

// --- Tensors -----------------------------------------------------------------

// Sizes of no power of two; the second one's rows have an odd number of words.
const RowKind kKeys = {"Keys", {2, 3, 100}, false};
const RowKind kFeatures = {"Features", FeatureShape(1001), true};
constexpr uint64_t kKeysChannel = 5;
constexpr uint64_t kFeaturesChannel = 6;
constexpr uint64_t kHiddenChannel = 7;
constexpr int kRows = 250;
constexpr int kHiddenSize = 500;

// The draft's process: reads by NCCL what it also reads by gRPC.
void ReadByBoth(const std::string& address) {
  TensorReaderClient by_grpc({});
  TensorReaderClient by_nccl({}, PatientLinks());
  const auto hidden = std::make_shared<RecordingSink>();
  by_nccl.Subscribe({address, kHiddenChannel, kHiddenSize, hidden});
  EXPECT_TRUE(Eventually([&] { return by_nccl.stats().links == 1; }));
  for (const auto& [channel, kind] : {std::pair(kKeysChannel, kKeys),
                                      std::pair(kFeaturesChannel, kFeatures)}) {
    const auto rows = RowSession::Subscribe(&by_nccl, address, channel, kind);
    const auto yardstick =
        RowSession::Subscribe(&by_grpc, address, channel, kind);
    rows->Await(kRows);
    yardstick->Await(kRows);
    EXPECT_EQ(rows->next(), kRows);
    EXPECT_TRUE(rows->bits() == yardstick->bits()) << kind.name;
  }
  for (int i = 0; i < 20; ++i) {
    const Tensor came = hidden->AwaitTensor().tensor;
    EXPECT_EQ(BitsOf(came),
              BitsOf(AnyBits(kHiddenChannel, came.tag.position, kHiddenSize)));
  }
  const TensorReader::Stats stats = by_nccl.stats();
  EXPECT_EQ(stats.link_failures, 0u);
  // All rows, in one transfer each at most; hidden states came before, too.
  EXPECT_GE(
      stats.received_bytes_over_links,
      kRows * (4 * kKeys.shape.row_size() + 2 * kFeatures.shape.row_size()));
  EXPECT_EQ(by_grpc.stats().received_over_links, 0u);
}

// --- Ranks -------------------------------------------------------------------

WorkerOptions NodeOptions(const std::string& model, const std::string& leader,
                          int node) {
  WorkerOptions options;
  options.model_dir = model;
  options.compute.backend.kind = "cuda";
  options.compute.backend.rank_transport = "nccl";
  options.compute.max_memory_bytes = kMemoryBytes;
  options.compute.tensor_parallel = 2;
  options.nodes.nodes = 2;
  options.nodes.rank = node;
  options.nodes.leader_address = leader;
  options.pace.hang_timeout = absl::Minutes(5);
  return options;
}

// The second node's process: its exit code.
int Follow(const std::string& model, const std::string& leader) {
  ExitSignal exit;
  const absl::Status status =
      RunFollower(NodeOptions(model, leader, 1), wire::WorkerRole::kTarget, {},
                  [] {}, {&exit, nullptr});
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

std::string WriteModel() {
  const std::string dir = nacre::testing::TestFolder("nccl_processes");
  TinyCheckpoint shape;
  shape.hidden_size = 64;
  shape.intermediate_size = 64;
  shape.num_hidden_layers = 2;
  shape.num_attention_heads = shape.num_key_value_heads = 2;
  shape.head_dim = 32;
  shape.vocab_size = 4096;
  shape.max_position_embeddings = 200;
  nacre::testing::WriteTinyCheckpoint(shape, dir);
  for (const char* file : {"tokenizer.model", "tokenizer_config.json"}) {
    std::filesystem::copy_file(
        std::string(NACRE_MODELS "/draft/") + file, dir + "/" + file,
        std::filesystem::copy_options::overwrite_existing);
  }
  return dir;
}

// What sessions say of a model on this node and another one.
absl::StatusOr<model::Values> RunNodes(const std::string& model,
                                       const std::string& leader_address) {
  const WorkerOptions options = NodeOptions(model, leader_address, 0);
  ExitSignal exit;
  NACRE_ASSIGN_OR_RETURN(const auto leader,
                         NodeLeader::Start(options, wire::WorkerRole::kTarget,
                                           {}, {&exit, nullptr}));
  absl::StatusOr<LoadedModel> loaded =
      LoadForWorker(options, wire::WorkerRole::kTarget, {}, leader.get());
  model::Values values;
  if (loaded.ok()) {
    loaded->model->BindComputeThread();
    values = model::RunSessions(loaded->model.get());
  }
  leader->End(loaded.status());
  NACRE_RETURN_IF_ERROR(loaded.status());
  return values;
}

// -----------------------------------------------------------------------------

class NcclProcessesTest : public ::testing::Test {
 protected:
  NcclProcessesTest() {
#ifdef NACRE_EMULATED_CUDA
    kernels::cuda::emulation::ResetDevice();
    setenv("NACRE_NCCL_FOLDER", nacre::testing::TestFolder("nccl").c_str(), 1);
#endif
    SetHost("nacre-0");
  }
  void SetUp() override {
    kernels::BackendOptions options;
    options.kind = "cuda";
    const absl::Status backend = kernels::CreateBackend(options).status();
    if (backend.code() == absl::StatusCode::kFailedPrecondition) {
      GTEST_SKIP() << "no CUDA device: " << backend.message();
    }
    const absl::Status nccl = kernels::OpenNccl({}).status();
    if (!nccl.ok()) GTEST_SKIP() << nccl.message();
  }

  // This program again, on a host of its own.
  static std::unique_ptr<Process> Start(std::vector<std::string> args,
                                        const char* host = "nacre-1") {
    args.insert(args.begin(), host);
    return std::make_unique<Process>(kProgram, std::move(args));
  }
};

TEST_F(NcclProcessesTest, TensorsHaveTheBitsOfGrpc) {
  TensorPublisherService publisher(PatientLinks());
  const auto server = *rpc::RpcServer::Start({}, {&publisher});
  std::atomic<bool> is_over = false;
  std::thread publishes([&] {
    for (int position = 0; !is_over; ++position) {
      publisher.Publish(AnyBits(kHiddenChannel, position, kHiddenSize));
      absl::SleepFor(absl::Milliseconds(1));
    }
  });
  {
    RowEngine engine(&publisher,
                     {{kKeysChannel, kKeys}, {kFeaturesChannel, kFeatures}});
    engine.StepTo(kRows);
    const auto reader = Start({kReads, server->address()});
    EXPECT_EQ(reader->Wait(), 0) << reader->Stderr();
  }
  is_over = true;
  publishes.join();
  EXPECT_EQ(publisher.stats().link_failures, 0u);
  EXPECT_EQ(publisher.stats().rows_sent_again, 0u);
  EXPECT_GT(publisher.stats().sent_over_links, 20u);
  publisher.EndReaders(absl::UnavailableError("stopping"));
  server->Shutdown(absl::Seconds(10));
}

TEST_F(NcclProcessesTest, RanksHaveTheBitsOfOne) {
  const std::string model = WriteModel();
  const std::string leader = nacre::testing::FreeAddress();
  const auto follower = Start({kFollows, leader, model});
  const absl::StatusOr<model::Values> values = RunNodes(model, leader);
  EXPECT_EQ(follower->Wait(), 0) << follower->Stderr();
  ASSERT_TRUE(values.ok()) << values.status() << follower->Stderr();

  WorkerOptions one = NodeOptions(model, "", 0);
  one.nodes = {};
  one.compute.tensor_parallel = 1;
  one.compute.backend.rank_transport = "host";
  const auto loaded = LoadForWorker(one, wire::WorkerRole::kTarget);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  loaded->model->BindComputeThread();
  const model::Values expected = model::RunSessions(loaded->model.get());
  EXPECT_GT(model::Largest(expected), 0);
  EXPECT_EQ(*values, expected);
}

#ifdef NACRE_EMULATED_CUDA
// As NCCL does: what the two above would show without their hosts.
TEST_F(NcclProcessesTest, TwoRanksOfOneHostMayNotShareAGpu) {
  const std::string model = WriteModel();
  const std::string leader = nacre::testing::FreeAddress();
  const auto follower = Start({kFollows, leader, model}, "nacre-0");
  const absl::Status status = RunNodes(model, leader).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the communicator: other error: Duplicate GPU"));
  EXPECT_EQ(follower->Wait(), 1);
  EXPECT_THAT(follower->Stderr(), HasSubstr("Duplicate GPU"));
}
#endif

int RunOther(absl::string_view role, const std::vector<std::string>& args) {
  if (role == kFollows && args.size() == 2) return Follow(args[1], args[0]);
  EXPECT_TRUE(role == kReads && args.size() == 1) << role;
  if (args.size() == 1) ReadByBoth(args[0]);
  return ::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1
                                                                           : 0;
}

}  // namespace
}  // namespace nacre::worker

// Of the second process: HOST ROLE ARGS...
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc < 3) return RUN_ALL_TESTS();
  nacre::worker::SetHost(argv[1]);
  return nacre::worker::RunOther(argv[2], {argv + 3, argv + argc});
}
