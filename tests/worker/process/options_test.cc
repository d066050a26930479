#include "worker/process/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "common/cpu_list.h"
#include "common/cpu_quota.h"

namespace nacre::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

absl::StatusOr<WorkerOptions> ParseWorkerOptions(
    const std::vector<std::string>& args) {
  WorkerOptions options;
  FlagSet flags("nacre-x", "does x");
  options.Register(&flags);
  absl::Status status = flags.Parse(args, nullptr);
  if (status.ok()) status = Validate(options);
  if (!status.ok()) return status;
  return options;
}

TEST(WorkerOptionsTest, ReadsEveryFlagInBothForms) {
  const absl::StatusOr<WorkerOptions> options =
      ParseWorkerOptions({"--model",
                          "m",
                          "--coordinator=c:7",
                          "--listen",
                          "[::1]:0",
                          "--advertise=h:8",
                          "--backend",
                          "reference",
                          "--cpus",
                          "1,3-4",
                          "--weights",
                          "f32",
                          "--kv-type=bf16",
                          "--device",
                          "2",
                          "--max-memory",
                          "3M",
                          "--address-file",
                          "a",
                          "--drain-timeout=1m",
                          "--hang-timeout",
                          "3s",
                          "--prefill-chunk=64",
                          "--spin=250us",
                          "--step-time=1:30,8:31",
                          "--prefix-cache=on",
                          "--prefix-cache-size=5M",
                          "--prefix-cache-dir=/cache",
                          "--tensor-parallel=2",
                          "--tensor-parallel-transport=host",
                          "--persistent-steps=off",
                          "--warpgroup-attention=off",
                          "--nodes=2",
                          "--node-rank=0",
                          "--leader-address=h:9",
                          "--join-timeout=2m",
                          "--gate-timeouts=off",
                          "--prefill=own",
                          "--suffix-drafter=off",
                          "--suffix-cache=2M",
                          "--medusa=heads",
                          "--medusa-tree=best",
                          "--target-tokenizer=other",
                          "--least-vocabulary-share=0.25",
                          "--tensor-transport=grpc",
                          "--publish-features=eagle",
                          "--feature-cache=3M",
                          "--policy-file=disco=/a=b",
                          "--policy-file",
                          "specdec++=dir",
                          "--record-features=rows.jsonl",
                          "--record-hidden=states",
                          "--metrics-listen",
                          "127.0.0.1:0",
                          "--metrics-address-file=b",
                          "--log-format=json",
                          "--log-level",
                          "debug"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->model_dir, "m");
  EXPECT_EQ(options->coordinator, "c:7");
  EXPECT_EQ(options->listen, "[::1]:0");
  EXPECT_EQ(options->advertise, "h:8");
  EXPECT_EQ(options->compute.backend.kind, "reference");
  EXPECT_THAT(options->compute.backend.cpus, ElementsAre(1, 3, 4));
  EXPECT_EQ(options->compute.backend.weights, "f32");
  EXPECT_EQ(options->compute.backend.kv_type, "bf16");
  EXPECT_EQ(options->compute.backend.device, 2);
  EXPECT_EQ(options->compute.max_memory_bytes, 3 << 20);
  EXPECT_EQ(options->address_file, "a");
  EXPECT_EQ(options->drain_timeout, absl::Minutes(1));
  EXPECT_EQ(options->pace.hang_timeout, absl::Seconds(3));
  EXPECT_EQ(options->pace.prefill_chunk, 64);
  EXPECT_EQ(options->pace.spin, absl::Microseconds(250));
  ASSERT_TRUE(options->step_time.times.has_value());
  EXPECT_EQ(options->step_time.times->At(8), 31'000'000);
  EXPECT_TRUE(options->compute.prefix_cache);
  EXPECT_EQ(options->compute.prefix_store.bytes, 5 << 20);
  EXPECT_EQ(options->compute.prefix_store.dir, "/cache");
  EXPECT_EQ(options->compute.tensor_parallel, 2);
  EXPECT_EQ(options->compute.backend.rank_transport, "host");
  EXPECT_EQ(options->nodes.nodes, 2);
  EXPECT_EQ(options->nodes.rank, 0);
  EXPECT_EQ(options->nodes.leader_address, "h:9");
  EXPECT_EQ(options->nodes.join_timeout, absl::Minutes(2));
  EXPECT_FALSE(options->gate_timeouts);
  EXPECT_EQ(options->prefill.by, "own");
  EXPECT_FALSE(options->own_drafts.suffix_drafter);
  EXPECT_EQ(options->own_drafts.suffix_cache_bytes, 2 << 20);
  ASSERT_NE(options->own_drafts.kind(), nullptr);
  EXPECT_STREQ(options->own_drafts.kind()->flag, "medusa");
  EXPECT_EQ(options->own_drafts.path(), "heads");
  EXPECT_EQ(options->vocabulary.target_tokenizer, "other");
  EXPECT_EQ(options->vocabulary.least_share, 0.25);
  EXPECT_EQ(options->own_drafts.medusa_tree, speculation::TreeShape::kBest);
  EXPECT_STREQ(options->tensors.transport->name, "grpc");
  EXPECT_EQ(options->features.draft, "eagle");
  EXPECT_EQ(options->features.cache_bytes, 3 << 20);
  EXPECT_THAT(options->policies.files,
              ElementsAre(Pair("disco", "/a=b"), Pair("specdec++", "dir")));
  EXPECT_EQ(options->record_features, "rows.jsonl");
  EXPECT_EQ(options->record_hidden, "states");
  EXPECT_EQ(options->metrics_listen, "127.0.0.1:0");
  EXPECT_EQ(options->metrics_address_file, "b");
  EXPECT_EQ(options->log.format, "json");
  EXPECT_EQ(options->log.level, "debug");
}

TEST(WorkerOptionsTest, OwnDraftsArePacedOnlyWhereThereIsOne) {
  const std::string pace = "--own-draft-step-time=1:3,8:3.5";
  for (const std::string draft : {"--medusa=d", "--eagle=d", "--glide=d"}) {
    const auto options =
        ParseWorkerOptions({"--model=m", "--coordinator=c:7", draft, pace});
    ASSERT_TRUE(options.ok()) << options.status();
    ASSERT_TRUE(options->own_drafts.step_time.times.has_value());
    EXPECT_EQ(options->own_drafts.step_time.times->At(8), 3'500'000);
    EXPECT_FALSE(options->step_time.times.has_value());
  }
  const auto alone =
      ParseWorkerOptions({"--model=m", "--coordinator=c:7", pace});
  EXPECT_EQ(alone.status(),
            absl::InvalidArgumentError(
                "--own-draft-step-time 1:3,8:3.5 needs --medusa, --eagle or "
                "--glide, whose calls it is for"));
  EXPECT_FALSE(ParseWorkerOptions({"--model=m", "--coordinator=c:7",
                                   "--eagle=d", "--own-draft-step-time=8"})
                   .ok());
}

TEST(WorkerOptionsTest, TheTypeOfKeysIsAutoUnlessTold) {
  const auto options = ParseWorkerOptions({"--model=m", "--coordinator=c:7"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->compute.backend.kv_type, "auto");
  for (const std::string type : {"auto", "f32", "bf16", "int8"}) {
    const auto told = ParseWorkerOptions(
        {"--model=m", "--coordinator=c:7", "--kv-type=" + type});
    ASSERT_TRUE(told.ok()) << told.status();
    EXPECT_EQ(told->compute.backend.kv_type, type);
  }
}

TEST(WorkerOptionsTest, RanksMayHaveAListOfDevices) {
  for (const auto& [text, first, listed] :
       {std::tuple<std::string, int, std::vector<int>>{"3", 3, {}},
        {"2,0,1,5", 2, {2, 0, 1, 5}}}) {
    const auto options =
        ParseWorkerOptions({"--model=m", "--coordinator=c:7", "--backend=cuda",
                            "--tensor-parallel=4", "--device", text});
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(options->compute.backend.device, first);
    EXPECT_EQ(options->compute.backend.devices, listed);
  }
}

TEST(WorkerOptionsTest, HelpNeedsNothingElseAndNamesEveryFlag) {
  WorkerOptions options;
  FlagSet flags("nacre-x", "does x");
  options.Register(&flags);
  EXPECT_TRUE(flags.Parse({"--help"}, nullptr).ok());
  EXPECT_TRUE(flags.help_requested());
  const std::string help = flags.Help();
  for (const char* flag :
       {"--model",           "--coordinator",    "--listen",
        "--advertise",       "--backend",        "--cpus",
        "--weights",         "--kv-type",        "--device",
        "--max-memory",      "--address-file",   "--drain-timeout",
        "--hang-timeout",    "--prefill-chunk",  "--spin",
        "--prefix-cache",    "--policy-file",    "--record-features",
        "--record-hidden",   "--metrics-listen", "--metrics-address-file",
        "--log-format",      "--log-level",      "--step-time",
        "--tensor-parallel", "--nodes",          "--node-rank",
        "--leader-address",  "--join-timeout",   "--prefill"}) {
    EXPECT_THAT(help, HasSubstr(flag));
  }
}

TEST(WorkerOptionsTest, AFollowerHasNoCoordinator) {
  EXPECT_TRUE(
      ParseWorkerOptions({"--model=m", "--nodes=2", "--tensor-parallel=2",
                          "--node-rank=1", "--leader-address=h:2"})
          .ok());
}

TEST(WorkerOptionsTest, HelpNamesEveryTensorTransport) {
  TensorFlags tensors;
  FlagSet flags("nacre-x", "does x");
  tensors.Register(&flags);
  for (const TensorTransport& each : TensorTransports()) {
    EXPECT_THAT(flags.Help(), HasSubstr(std::string(each.name) + ", "));
  }
}

struct BadLine {
  std::vector<std::string> args;
  const char* message;
};

class WorkerOptionsErrorTest : public ::testing::TestWithParam<BadLine> {};

TEST_P(WorkerOptionsErrorTest, NamesTheFlagAndTheValue) {
  const absl::StatusOr<WorkerOptions> options =
      ParseWorkerOptions(GetParam().args);
  ASSERT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(options.status().message()),
              HasSubstr(GetParam().message));
}

TEST(WorkerOptionsTest, CpusAutoAreThoseThatTheProcessMayUse) {
  const absl::StatusOr<WorkerOptions> options =
      ParseWorkerOptions({"--model=m", "--coordinator=c:7", "--cpus=auto"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->compute.backend.cpus,
            CpusWithin(AvailableCpus(), CpuQuota()));
}

INSTANTIATE_TEST_SUITE_P(
    All, WorkerOptionsErrorTest,
    ::testing::Values(
        BadLine{{}, "--model DIR is required"},
        BadLine{{"--model", "m"}, "--coordinator HOST:PORT is required"},
        BadLine{{"--model"}, "flag --model has no value"},
        BadLine{{"model", "m"}, "unexpected argument \"model\""},
        BadLine{{"--model=m", "--coordinator=c:1", "--record-hidden=h"},
                "--record-hidden h needs --record-features"},
        BadLine{{"--modle=m"}, "unknown flag --modle"},
        BadLine{{"--cpus", "1,x"}, "--cpus: \"1,x\""},
        BadLine{{"--device", "-1"}, "--device: \"-1\""},
        BadLine{{"--device", "0,x"},
                "\"0,x\" is not a device number of 0 or more, or a list"},
        BadLine{{"--max-memory", "0"}, "--max-memory: \"0\""},
        BadLine{{"--max-memory", "G"}, "--max-memory: \"G\""},
        BadLine{{"--max-memory", "99999999999G"}, "--max-memory"},
        BadLine{{"--log-format", "xml"}, "--log-format \"xml\""},
        BadLine{{"--log-level", "loud"}, "--log-level \"loud\""},
        BadLine{{"--drain-timeout", "soon"}, "--drain-timeout: \"soon\""},
        BadLine{{"--drain-timeout", "-1s"}, "--drain-timeout: \"-1s\""},
        BadLine{{"--hang-timeout", "0s"}, "--hang-timeout: \"0s\""},
        BadLine{{"--hang-timeout", "8"}, "--hang-timeout: \"8\""},
        BadLine{{"--prefill-chunk", "0"}, "--prefill-chunk: \"0\""},
        BadLine{{"--prefill-chunk", "513"}, "1 to 512"},
        BadLine{{"--spin", "-1ms"}, "--spin: \"-1ms\""},
        BadLine{{"--spin", "11s"}, "0 to 10s"},
        BadLine{{"--step-time", "8:1,4:2"}, "\"4:2\": the rows do not rise"},
        BadLine{{"--step-time", "1:fast"}, "\"1:fast\": the milliseconds"},
        BadLine{{"--prefix-cache", "yes"}, "--prefix-cache: \"yes\""},
        BadLine{{"--prefix-cache-size", "1.5G"},
                "--prefix-cache-size: \"1.5G\" is not 0 and not a number"},
        BadLine{{"--model=m", "--coordinator=h:1", "--prefix-cache=off",
                 "--prefix-cache-size=4K"},
                "--prefix-cache-size 4096 needs --prefix-cache on"},
        BadLine{{"--model=m", "--coordinator=h:1", "--backend=cuda",
                 "--prefix-cache-size=4K"},
                "--prefix-cache-size 4096: the backend cuda keeps no more"},
        BadLine{{"--model=m", "--coordinator=h:1", "--prefix-cache-dir=/d"},
                "--prefix-cache-dir /d needs --prefix-cache-size"},
        BadLine{{"--tensor-parallel=3"}, "not 0, 1, 2, 4 or 8"},
        BadLine{{"--tensor-parallel=-2"}, "not 0, 1, 2, 4 or 8"},
        BadLine{{"--model=m", "--coordinator=h:1", "--device=0,1",
                 "--tensor-parallel=2"},
                "--device 0,1 needs --backend cuda, it is cpu"},
        BadLine{{"--model=m", "--coordinator=h:1", "--device=0,1",
                 "--backend=cuda"},
                "--device 0,1 needs --tensor-parallel 2: without it there is "
                "one GPU"},
        BadLine{{"--tensor-parallel-transport", "pigeon"},
                "--tensor-parallel-transport: \"pigeon\" is not one of: auto, "
                "nccl, peer, host"},
        BadLine{{"--model=m", "--coordinator=h:1", "--tensor-parallel=2",
                 "--tensor-parallel-transport=nccl"},
                "--tensor-parallel-transport nccl needs --backend cuda, it is "
                "cpu"},
        BadLine{{"--model=m", "--coordinator=h:1", "--backend=cuda",
                 "--tensor-parallel-transport=nccl"},
                "--tensor-parallel-transport nccl needs --tensor-parallel"},
        BadLine{{"--model=m", "--coordinator=h:1", "--tensor-parallel=2",
                 "--tensor-parallel-transport=peer"},
                "--tensor-parallel-transport peer needs --backend cuda, it is "
                "cpu"},
        BadLine{{"--model=m", "--coordinator=h:1", "--backend=cuda",
                 "--tensor-parallel=1", "--tensor-parallel-transport=peer"},
                "--tensor-parallel-transport peer needs --tensor-parallel of "
                "2 or more, it is 1"},
        BadLine{{"--model=m", "--coordinator=h:1", "--backend=cuda",
                 "--tensor-parallel=2", "--tensor-parallel-transport=peer",
                 "--nodes=2"},
                "--nodes 2 and --tensor-parallel-transport peer exclude each "
                "other: "},
        BadLine{{"--persistent-steps=1"}, "--persistent-steps: \"1\""},
        BadLine{{"--model=m", "--coordinator=h:1", "--persistent-steps=on"},
                "--persistent-steps needs --backend cuda, it is cpu"},
        BadLine{{"--model=m", "--coordinator=h:1", "--backend=cuda",
                 "--persistent-steps=on", "--tensor-parallel=2"},
                "--persistent-steps and --tensor-parallel 2 exclude each"},
        BadLine{{"--warpgroup-attention=1"}, "--warpgroup-attention: \"1\""},
        BadLine{{"--model=m", "--coordinator=h:1", "--warpgroup-attention=on"},
                "--warpgroup-attention needs --backend cuda, it is cpu"},
        BadLine{{"--nodes=3"}, "not 1, 2, 4 or 8"},
        BadLine{{"--node-rank=8"}, "not a number of 0 to 7"},
        BadLine{{"--join-timeout=0s"}, "not a duration like 10m"},
        BadLine{{"--model=m", "--coordinator=h:1", "--node-rank=1"},
                "--node-rank 1 needs --nodes"},
        BadLine{{"--model=m", "--coordinator=h:1", "--leader-address=h:2"},
                "--leader-address h:2 needs --nodes"},
        BadLine{{"--model=m", "--coordinator=h:1", "--nodes=2"},
                "--nodes 2 needs --tensor-parallel of 2 or more, it is 0"},
        BadLine{{"--model=m", "--coordinator=h:1", "--nodes=2",
                 "--tensor-parallel=2"},
                "--nodes 2 needs --node-rank, 0 to 1"},
        BadLine{{"--model=m", "--coordinator=h:1", "--nodes=2",
                 "--tensor-parallel=2", "--node-rank=2"},
                "--node-rank 2 of --nodes 2 is not 0 to 1"},
        BadLine{{"--model=m", "--coordinator=h:1", "--nodes=2",
                 "--tensor-parallel=2", "--node-rank=0"},
                "--nodes 2 needs --leader-address HOST:PORT"},
        BadLine{
            {"--model=m", "--coordinator=h:1", "--nodes=2",
             "--tensor-parallel=2", "--node-rank=0", "--leader-address=h:0"},
            "--leader-address \"h:0\" is not HOST:PORT"},
        BadLine{{"--model=m", "--nodes=2", "--tensor-parallel=2",
                 "--node-rank=0", "--leader-address=h:2"},
                "--coordinator HOST:PORT is required"},
        BadLine{{"--prefill=cublass"},
                "--prefill: \"cublass\" is not own and not cublas"},
        BadLine{{"--model=m", "--coordinator=h:1", "--prefill=cublas"},
                "--prefill cublas needs --backend cuda, it is cpu"},
        BadLine{{"--model=m", "--coordinator=h:1", "--prefill=cublas",
                 "--backend=cuda", "--weights=int4"},
                "--prefill cublas needs bf16 weights, --weights is int4"},
        BadLine{{"--model=m", "--coordinator=h:1", "--prefill=cublas",
                 "--backend=cuda", "--tensor-parallel=2"},
                "--prefill cublas and --tensor-parallel 2 exclude each other"},
        BadLine{{"--tensor-transport", "pigeon"},
                "--tensor-transport: \"pigeon\" is not one of: grpc, nccl"},
        BadLine{{"--model=m", "--coordinator=h:1", "--tensor-transport=nccl"},
                "--tensor-transport nccl needs --backend cuda, it is cpu"},
        BadLine{{"--policy-file", "disco"},
                "--policy-file: \"disco\" is not NAME=DIR, NAME one of: svip "
                "cali-ts "
                "disco specdec++ optimal-static"},
        BadLine{{"--policy-file", "beta-ts=dir"}, "is not NAME=DIR"},
        BadLine{{"--policy-file", "disco="}, "is not NAME=DIR"},
        BadLine{{"--suffix-cache=65535"}, "not a number of bytes from 64K"},
        BadLine{{"--feature-cache=0"}, "not a number of bytes of 64K or more"},
        BadLine{{"--feature-cache=65535"},
                "not a number of bytes of 64K or more"},
        BadLine{{"--model=m", "--coordinator=h:1", "--feature-cache=64M"},
                "--feature-cache 64M needs --publish-features"},
        BadLine{{"--suffix-cache=-1"}, "not a number of bytes from 64K"},
        BadLine{{"--suffix-cache=17G"}, "from 64K to 16G"},
        BadLine{{"--least-vocabulary-share=1.5"}, "not a share from 0 to 1"},
        BadLine{{"--least-vocabulary-share=nan"}, "not a share from 0 to 1"},
        BadLine{{"--medusa-tree=eagle2"}, "not best and not static:FILE"},
        BadLine{{"--medusa-tree=static:"}, "flag --medusa-tree"},
        BadLine{{"--model=m", "--coordinator=h:1", "--medusa=a", "--eagle=b"},
                "--medusa, --eagle and --glide exclude each other"},
        BadLine{{"--model=m", "--coordinator=h:1", "--glide=a", "--eagle=b"},
                "--medusa, --eagle and --glide exclude each other"},
        BadLine{{"--model=m", "--coordinator=h:1", "--medusa=a", "--glide=b"},
                "--medusa, --eagle and --glide exclude each other"},
        BadLine{{"--policy-file=disco=a", "--policy-file=disco=b"},
                "there is already a file for disco"},
        BadLine{{"--model=m", "--coordinator=host"}, "--coordinator \"host\""},
        BadLine{{"--model=m", "--coordinator=host:0"}, "is not HOST:PORT"},
        BadLine{{"--model=m", "--coordinator=h:1", "--listen=h:65536"},
                "--listen \"h:65536\""},
        BadLine{{"--model=m", "--coordinator=h:1", "--metrics-listen=9464"},
                "--metrics-listen \"9464\""},
        BadLine{{"--model=m", "--coordinator=h:1", "--advertise=:1"},
                "--advertise \":1\""},
        BadLine{{"--model=m", "--coordinator=h:1", "--listen=0.0.0.0:1"},
                "--advertise is required"}));

}  // namespace
}  // namespace nacre::worker
