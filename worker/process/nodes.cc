#include "worker/process/nodes.h"

#include <spdlog/spdlog.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/ranks/follower_model.h"
#include "model/ranks/leader_model.h"
#include "model/tensor_parallel_model.h"
#include "telemetry/build_info.h"
#include "worker/process/load.h"
#include "worker/ranks/follower_client.h"

namespace nacre::worker {
namespace {

// For the other nodes to hear that this one ends.
constexpr absl::Duration kNodeFarewell = absl::Seconds(2);

// What is known before anything is loaded.
NodeFacts FactsToJoin(const WorkerOptions& options, wire::WorkerRole role) {
  const telemetry::BuildInfo build = telemetry::GetBuildInfo();
  return {
      {"version", absl::StrCat(build.version, " of commit ", build.commit)},
      {"role", role == wire::WorkerRole::kDraft ? "draft" : "target"},
      {"--nodes", absl::StrCat(options.nodes.nodes)},
      {"--tensor-parallel", absl::StrCat(options.compute.tensor_parallel)},
      {"--backend", options.compute.backend.kind},
      {"--tensor-parallel-transport", options.compute.backend.rank_transport}};
}

// What of a model makes two nodes compute alike, and keep the same sequences.
NodeFacts FactsOf(const WorkerOptions& options,
                  const model::LanguageModel& model) {
  const model::ModelInfo& info = model.info();
  return {{"the checkpoint's fingerprint", info.fingerprint},
          {"numerics_id", info.numerics_id},
          {"the KV cache's capacity", absl::StrCat(info.kv_capacity_tokens)},
          {"--prefix-cache", options.compute.prefix_cache ? "on" : "off"},
          {"--prefix-cache-size",
           absl::StrCat(options.compute.prefix_store.bytes)}};
}

// Does what the leader says, until it has stopped.
absl::Status Follow(FollowerClient* client, model::TensorParallelModel* ranks) {
  ranks->BindComputeThread();
  model::FollowerModel follower(ranks);
  while (true) {
    NACRE_ASSIGN_OR_RETURN(const std::vector<model::RankCommand> commands,
                           client->NextCommands());
    if (commands.empty()) return absl::OkStatus();
    for (const model::RankCommand& command : commands) {
      NACRE_RETURN_IF_ERROR(follower.Do(command));
    }
  }
}

// Asks the leader to stop, when the process is told to terminate.
class LeaveThread {
 public:
  LeaveThread(FollowerClient* client, ExitSignal* exit)
      : exit_(exit), thread_([client, exit] {
          exit->Wait();
          if (!exit->failure().ok()) return;
          spdlog::info("asking the leader to stop all nodes");
          client->Leave();
        }) {}
  ~LeaveThread() {
    exit_->Fail(absl::CancelledError("the node has ended"));
    thread_.join();
  }
  LeaveThread(const LeaveThread&) = delete;
  LeaveThread& operator=(const LeaveThread&) = delete;

 private:
  ExitSignal* const exit_;
  std::thread thread_;
};

// How a follower ends that has computed, or loaded, until `status`: OK if the
// leader has stopped. Else the leader hears why, unless it knows.
absl::Status Ended(FollowerClient* client, const absl::Status& status) {
  if (status.ok() || client->has_stopped()) {
    spdlog::info("stopped, as the leader has");
    return absl::OkStatus();
  }
  client->Abort(status);
  return status;
}

// A follower's ranks. Null: the leader has stopped in order meanwhile.
absl::StatusOr<std::unique_ptr<model::TensorParallelModel>> LoadWatched(
    const WorkerOptions& options, wire::WorkerRole role, FollowerClient* client,
    const NodeProcess& process) {
  absl::StatusOr<std::unique_ptr<model::TensorParallelModel>> ranks;
  {
    const LoadWatch watch(process, [client](const absl::Status& status) {
      if (status.ok()) client->Leave();
      client->AwaitEnd(kNodeFarewell);
    });
    client->SetOnEnd([exit = process.exit](const absl::Status& status) {
      status.ok() ? exit->Drain() : exit->Fail(status);
    });
    ranks = LoadRanks(options, role, {}, client);
    client->SetOnEnd(nullptr);
  }
  if (ranks.ok()) return ranks;
  NACRE_RETURN_IF_ERROR(Ended(client, ranks.status()));
  return nullptr;
}

}  // namespace

NodeLeader::NodeLeader(const WorkerOptions& options, wire::WorkerRole role,
                       bool is_encrypted)
    : options_(options),
      service_(options.nodes.nodes, FactsToJoin(options, role), is_encrypted) {}

NodeLeader::~NodeLeader() {
  watch_.reset();
  service_.End(absl::AbortedError("the leader has ended"));
  if (server_ != nullptr) server_->Shutdown(absl::Seconds(1));
}

absl::StatusOr<std::unique_ptr<NodeLeader>> NodeLeader::Start(
    const WorkerOptions& options, wire::WorkerRole role,
    const rpc::PeerSecurity& security, const NodeProcess& process) {
  if (options.nodes.nodes == 1) return nullptr;
  NACRE_RETURN_IF_ERROR(CheckBeforeLoad(options, role));
  std::unique_ptr<NodeLeader> leader(new NodeLeader(
      options, role, /*is_encrypted=*/security.server != nullptr));
  rpc::RpcServer::Options server;
  server.listen = options.nodes.leader_address;
  // A stream a node, and a few of those that are refused.
  server.max_connections = 32;
  server.max_streams_per_connection = 4;
  server.credentials = security.server;
  NACRE_ASSIGN_OR_RETURN(leader->server_,
                         rpc::RpcServer::Start(server, {&leader->service_}));
  spdlog::info("node 0 of {}: the others join at {}", options.nodes.nodes,
               leader->server_->address());
  LeaderService* const service = &leader->service_;
  service->SetOnFailure([exit = process.exit](const absl::Status& status) {
    exit->Fail(status);
  });
  service->SetOnLeave([exit = process.exit] { exit->Drain(); });
  leader->watch_ = std::make_unique<LoadWatch>(
      process, [service](const absl::Status& status) {
        service->End(status);
        service->AwaitEnded(kNodeFarewell);
      });
  const absl::Status joined = service->AwaitJoined(options.nodes.join_timeout);
  if (!joined.ok()) {
    leader->Fail(joined);
    return joined;
  }
  service->SetPatience(options.nodes.join_timeout);
  return leader;
}

absl::StatusOr<std::unique_ptr<model::LanguageModel>> NodeLeader::Lead(
    std::unique_ptr<model::LanguageModel> ranks) {
  NACRE_RETURN_IF_ERROR(service_.AwaitLoaded(FactsOf(options_, *ranks),
                                             options_.nodes.join_timeout));
  return std::make_unique<model::LeaderModel>(std::move(ranks), &service_);
}

void NodeLeader::StartServing() {
  watch_.reset();
  service_.StartServing(options_.pace.hang_timeout);
}

void NodeLeader::Fail(const absl::Status& status) {
  service_.End(
      absl::Status(status.code(), absl::StrCat("node 0: ", status.message())));
}

absl::Status RunFollower(const WorkerOptions& options, wire::WorkerRole role,
                         const rpc::ChannelSecurity& security,
                         const std::function<void()>& on_joined,
                         const NodeProcess& process) {
  NACRE_RETURN_IF_ERROR(CheckBeforeLoad(options, role));
  FollowerClient::Options join;
  join.leader = options.nodes.leader_address;
  join.security = security;
  join.node = options.nodes.rank.value_or(0);
  join.nodes = options.nodes.nodes;
  join.facts = FactsToJoin(options, role);
  spdlog::info("node {} of {}: joining {}", join.node, join.nodes, join.leader);
  NACRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<FollowerClient> client,
      FollowerClient::Join(join, options.nodes.join_timeout));
  on_joined();
  client->SetPatience(options.nodes.join_timeout);  // nodes meet as they load
  NACRE_ASSIGN_OR_RETURN(const auto ranks,
                         LoadWatched(options, role, client.get(), process));
  if (ranks == nullptr) return absl::OkStatus();
  client->SayLoaded(FactsOf(options, *ranks));
  spdlog::info("following {}: {}", join.leader, ranks->info().description);
  const LeaveThread leave(client.get(), process.exit);
  return Ended(client.get(), Follow(client.get(), ranks.get()));
}

}  // namespace nacre::worker
