// The coordinator: public API, tokenizer, pairing and the speculation schedule.
// Clients call nacre.v1.Inference, workers dial nacre.v1.Registry, operators
// nacre.v1.Admin, each on a port of its own.
//
//   nacre-coordinator --tokenizer MODEL_DIR --listen 127.0.0.1:50050

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/logging.h"
#include "common/mutex_checks.h"
#include "common/rpc/acceptor.h"
#include "common/rpc/connections.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/signals.h"
#include "common/status_macros.h"
#include "coordinator/admin_service.h"
#include "coordinator/dispatcher.h"
#include "coordinator/health.h"
#include "coordinator/heap_trimmer.h"
#include "coordinator/inference_service.h"
#include "coordinator/limit_flags.h"
#include "coordinator/observability.h"
#include "coordinator/registry_service.h"
#include "coordinator/security_flags.h"
#include "coordinator/servers.h"
#include "coordinator/tick_thread.h"
#include "coordinator/trace_flags.h"
#include "tokenizer/tokenizer.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:50050",
          "host:port for clients; port 0 picks a free one");
ABSL_FLAG(std::string, registry_listen, "127.0.0.1:50051",
          "host:port for workers: their --coordinator");
ABSL_FLAG(std::string, admin_listen, "127.0.0.1:50052",
          "host:port for operators (nacre.v1.Admin)");
ABSL_FLAG(std::string, tokenizer, "",
          "folder of the target's checkpoint, for its tokenizer files");
ABSL_FLAG(std::string, address_file, "",
          "file that receives the real host:port for clients, last of all");
ABSL_FLAG(std::string, registry_address_file, "",
          "file that receives the real host:port for workers");
ABSL_FLAG(std::string, admin_address_file, "",
          "file that receives the real host:port for operators");
ABSL_FLAG(
    std::string, metrics_listen, "",
    "host:port to serve /metrics on, port 0 picks a free one; empty: off");
ABSL_FLAG(std::string, metrics_address_file, "",
          "file that receives the real host:port of /metrics");
ABSL_FLAG(std::string, log_format, "text", "text or json");
ABSL_FLAG(std::string, log_level, "info",
          "trace, debug, info, warn, error or off");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(30),
          "how long SIGTERM waits for running requests");

namespace nacre::coordinator {
namespace {

// They name a worker or a request, and come before any token is looked at.
constexpr int kMaxAdminRequestBytes = 64 << 10;
// Of workers, and of operators.
constexpr int kMaxPeerConnections = 1024;
constexpr int kMaxPeerStreams = 64;  // of one connection
constexpr int64_t kMaxPeerMemory = int64_t{256} << 20;

absl::StatusOr<Observability::Options> ObservabilityOptions(
    const std::string& model_dir) {
  Observability::Options options;
  // What the target calls itself, known before one is there.
  options.model =
      std::filesystem::absolute(model_dir + "/").parent_path().filename();
  options.metrics = {absl::GetFlag(FLAGS_metrics_listen),
                     absl::GetFlag(FLAGS_metrics_address_file)};
  NACRE_ASSIGN_OR_RETURN(options.traces, TraceSettingsFromFlags());
  return options;
}

absl::Status Run() {
  NACRE_ASSIGN_OR_RETURN(const LogOptions log_options,
                         ParseLogOptions(absl::GetFlag(FLAGS_log_format),
                                         absl::GetFlag(FLAGS_log_level)));
  const Logging logging("coordinator", log_options);
  const rpc::GrpcLog grpc_log;
  const std::string model_dir = absl::GetFlag(FLAGS_tokenizer);
  if (model_dir.empty()) {
    return absl::InvalidArgumentError("--tokenizer MODEL_DIR is required");
  }
  NACRE_ASSIGN_OR_RETURN(const Limits limits, LimitsFromFlags());
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<tokenizer::Tokenizer> tokenizer,
                         tokenizer::LoadTokenizer(model_dir));
  spdlog::info("tokenizer {}: {} pieces", model_dir, tokenizer->vocab_size());

  NACRE_ASSIGN_OR_RETURN(Observability::Options observability_options,
                         ObservabilityOptions(model_dir));
  Observability observability(std::move(observability_options));
  NACRE_ASSIGN_OR_RETURN(const CoordinatorSecurity security, LoadSecurity());

  TickThread ticks;  // stopped before the dispatcher goes
  Dispatcher::Options options{
      .tokenizer = tokenizer.get(),
      .observer = observability.observer(),
      .wake_at = [&ticks](int64_t at_ns) { ticks.WakeAt(at_ns); }};
  limits.ApplyTo(&options);
  Dispatcher dispatcher(std::move(options));
  RegistryService registry(&dispatcher, tokenizer.get(),
                           {.security = security.peers.channel,
                            .worker_timeout_ns = limits.worker_timeout_ns});
  const auto connections = std::make_shared<rpc::Connections>();
  InferenceLimits inference_limits = limits.inference;
  inference_limits.receiving.received = [connections](const std::string& peer) {
    return connections->Received(peer);
  };
  inference_limits.wake_at = [&ticks](int64_t at_ns) { ticks.WakeAt(at_ns); };
  InferenceService inference(
      &dispatcher, tokenizer.get(), observability.observer(),
      std::move(inference_limits), security.authenticator.get());
  AdminService admin(&dispatcher, &registry, security.authenticator.get());
  rpc::RpcServer::Options clients{absl::GetFlag(FLAGS_listen),
                                  absl::GetFlag(FLAGS_address_file),
                                  security.clients};
  limits.ApplyTo(&clients);
  clients.connections = connections;
  clients.max_connections =
      std::clamp(rpc::RaiseFileLimit() / 2, 1, clients.max_connections);
  rpc::RpcServer::Options workers{absl::GetFlag(FLAGS_registry_listen),
                                  absl::GetFlag(FLAGS_registry_address_file),
                                  security.peers.server, rpc::kMaxMessageBytes,
                                  kMaxPeerConnections};
  rpc::RpcServer::Options operators{absl::GetFlag(FLAGS_admin_listen),
                                    absl::GetFlag(FLAGS_admin_address_file),
                                    security.peers.server,
                                    kMaxAdminRequestBytes, kMaxPeerConnections};
  for (rpc::RpcServer::Options* peers : {&workers, &operators}) {
    peers->max_streams_per_connection = kMaxPeerStreams;
    peers->max_memory_bytes = kMaxPeerMemory;
  }
  NACRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<CoordinatorServers> servers,
      CoordinatorServers::Start(
          {{clients, &inference}, {workers, &registry}, {operators, &admin}}));
  observability.SetServer(servers->inference().address());
  Health::Options health_options;
  health_options.ticks = &ticks;
  health_options.set_serving = [&servers](const std::string& service,
                                          bool serving) {
    servers->SetServing(service, serving);
  };
  Health health(std::move(health_options));
  NACRE_RETURN_IF_ERROR(
      observability.Start(&registry, [&health] { return health.state(); }));
  ticks.Start([&dispatcher, &registry, &inference, &health] {
    const int64_t next_ns =
        std::min({dispatcher.Tick(), registry.Tick(), inference.Tick()});
    health.OnTick(dispatcher.workers());
    return next_ns;
  });
  spdlog::info("clients: {} ({}), workers: {}, operators: {} ({})",
               servers->inference().address(),
               security.clients == nullptr ? "plaintext" : "TLS",
               servers->registry().address(), servers->admin().address(),
               security.peers.server == nullptr ? "plaintext" : "TLS");

  HeapTrimmer trimmer({});
  trimmer.Start();
  rpc::WaitForTerminationSignal();
  health.Drain();
  spdlog::info("draining {} requests", dispatcher.sessions().size());
  if (!dispatcher.Drain(absl::GetFlag(FLAGS_drain_timeout))) {
    spdlog::warn("{} requests cut off", dispatcher.sessions().size());
    dispatcher.EndAll();
  }
  registry.Shutdown();
  servers->Shutdown(absl::Seconds(1));
  ticks.Stop();
  observability.Stop();
  return absl::OkStatus();
}

}  // namespace
}  // namespace nacre::coordinator

// Flags are written with dashes everywhere; Abseil's names have underscores.
static void AcceptDashes(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] != '-' || argv[i][1] != '-') continue;
    for (char* c = argv[i] + 2; *c != '\0' && *c != '='; ++c) {
      if (*c == '-') *c = '_';
    }
  }
}

int main(int argc, char** argv) {
  nacre::coordinator::LimitHeap();
  nacre::DisableMutexChecks();
  nacre::rpc::BlockTerminationSignals();
  AcceptDashes(argc, argv);
  absl::SetProgramUsageMessage(
      "Public API, tokenizer and speculation schedule of Nacre.\n"
      "nacre-coordinator --tokenizer MODEL_DIR [--listen HOST:PORT]");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = nacre::coordinator::Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "nacre-coordinator: %s\n",
               std::string(status.message()).c_str());
  return 1;
}
