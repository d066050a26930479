// The coordinator: public API, tokenizer, pairing and the speculation schedule.
// Clients call nacre.v1.Inference, workers dial nacre.v1.Registry, operators
// nacre.v1.Admin, each on a port of its own.
//
//   nacre-coordinator --tokenizer MODEL_DIR --listen 127.0.0.1:50050

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/flag_set.h"
#include "common/heap_trimmer.h"
#include "common/logging.h"
#include "common/mutex_checks.h"
#include "common/quoted.h"
#include "common/rpc/acceptor.h"
#include "common/rpc/connections.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/signals.h"
#include "common/status_macros.h"
#include "coordinator/api/admin_service.h"
#include "coordinator/api/health.h"
#include "coordinator/api/inference_service.h"
#include "coordinator/api/registry_service.h"
#include "coordinator/dispatch/dispatcher.h"
#include "coordinator/dispatch/tick_thread.h"
#include "coordinator/limit_flags.h"
#include "coordinator/observe/observability.h"
#include "coordinator/security_flags.h"
#include "coordinator/servers.h"
#include "telemetry/program.h"
#include "telemetry/trace_settings.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {
namespace {

// They name a worker or a request, and come before any token is looked at.
constexpr int kMaxAdminRequestBytes = 64 << 10;
// Of workers, and of operators.
constexpr int kMaxPeerConnections = 1024;
constexpr int kMaxPeerStreams = 64;  // of one connection
constexpr int64_t kMaxPeerMemory = int64_t{256} << 20;

// A port: where it listens, and the file that receives the real address.
struct PortFlags {
  std::string listen;
  std::string address_file;
};

struct Flags {
  std::string tokenizer;
  std::string served_model_name;  // empty: the target's folder
  PortFlags clients{"127.0.0.1:50050", ""};
  PortFlags workers{"127.0.0.1:50051", ""};
  PortFlags operators{"127.0.0.1:50052", ""};
  PortFlags metrics;
  absl::Duration drain_timeout = absl::Seconds(30);
  LogFlags log;
  LimitFlags limits;
  CoordinatorSecurityFlags security;
  telemetry::TraceFlags traces;

  void Register(FlagSet* flags) {
    flags->Add(
        "tokenizer", "DIR", &tokenizer,
        "folder of the target's checkpoint, for its tokenizer files, or its "
        "GGUF file (required)");
    flags->Add(
        "served-model-name", "NAME", &served_model_name,
        "what clients call the model, and its label of metrics (default: "
        "the name of the target's folder)");
    flags->Add("listen", "HOST:PORT", &clients.listen,
               "for clients; port 0 picks a free one");
    flags->Add("registry-listen", "HOST:PORT", &workers.listen,
               "for workers: their --coordinator");
    flags->Add("admin-listen", "HOST:PORT", &operators.listen,
               "for operators (nacre.v1.Admin)");
    flags->Add("metrics-listen", "HOST:PORT", &metrics.listen,
               "to serve /metrics on, port 0 picks a free one; empty: off");
    flags->Add("address-file", "FILE", &clients.address_file,
               "receives the real host:port for clients, last of all");
    flags->Add("registry-address-file", "FILE", &workers.address_file,
               "receives the real host:port for workers");
    flags->Add("admin-address-file", "FILE", &operators.address_file,
               "receives the real host:port for operators");
    flags->Add("metrics-address-file", "FILE", &metrics.address_file,
               "receives the real host:port of /metrics");
    flags->Add("drain-timeout", "DURATION", &drain_timeout,
               "how long SIGTERM waits for running requests");
    log.Register(flags);
    limits.Register(flags);
    security.Register(flags);
    traces.Register(flags);
  }
};

// It goes into labels and JSON.
absl::Status CheckServedName(const std::string& name) {
  constexpr size_t kMaxNameBytes = 256;
  if (name.size() <= kMaxNameBytes &&
      std::all_of(name.begin(), name.end(),
                  [](char c) { return c > 0x20 && c < 0x7f; })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--served-model-name ", Quoted(name), " is not of 1 to ",
                   kMaxNameBytes, " bytes from ! to ~"));
}

absl::StatusOr<Observability::Options> ObservabilityOptions(
    const Flags& flags) {
  NACRE_RETURN_IF_ERROR(CheckServedName(flags.served_model_name));
  Observability::Options options;
  // What the target is called, known before one is there.
  options.model = !flags.served_model_name.empty()
                      ? flags.served_model_name
                      : std::filesystem::absolute(flags.tokenizer + "/")
                            .parent_path()
                            .filename()
                            .string();
  options.metrics = {flags.metrics.listen, flags.metrics.address_file};
  NACRE_ASSIGN_OR_RETURN(options.traces, telemetry::ResolveTraceSettings(
                                             flags.traces, "nacre-coordinator",
                                             FlagSet::ProcessEnvironment()));
  return options;
}

struct Services {
  InferenceService* inference;
  RegistryService* registry;
  AdminService* admin;
};

absl::StatusOr<std::unique_ptr<CoordinatorServers>> StartServers(
    const Flags& flags, const CoordinatorSecurity& security,
    const Limits& limits, std::shared_ptr<rpc::Connections> connections,
    const Services& services) {
  rpc::RpcServer::Options clients{flags.clients.listen,
                                  flags.clients.address_file, security.clients};
  limits.ApplyTo(&clients);
  clients.connections = std::move(connections);
  clients.max_connections =
      std::clamp(rpc::RaiseFileLimit() / 2, 1, clients.max_connections);
  rpc::RpcServer::Options workers{
      flags.workers.listen, flags.workers.address_file, security.peers.server,
      rpc::kMaxMessageBytes, kMaxPeerConnections};
  rpc::RpcServer::Options operators{
      flags.operators.listen, flags.operators.address_file,
      security.peers.server, kMaxAdminRequestBytes, kMaxPeerConnections};
  for (rpc::RpcServer::Options* peers : {&workers, &operators}) {
    peers->max_streams_per_connection = kMaxPeerStreams;
    peers->max_memory_bytes = kMaxPeerMemory;
  }
  return CoordinatorServers::Start({{clients, services.inference},
                                    {workers, services.registry},
                                    {operators, services.admin}});
}

Health::Options HealthOptions(const Limits& limits, TickThread* ticks,
                              CoordinatorServers* servers) {
  Health::Options options;
  options.ticks = ticks;
  options.set_serving = [servers](const std::string& service, bool serving) {
    servers->SetServing(service, serving);
  };
  if (limits.hold_without_target) {
    options.hold_ns = limits.queue_timeout_ns;
  }
  return options;
}

void DrainRequests(Dispatcher* dispatcher, absl::Duration timeout) {
  spdlog::info("draining {} requests", dispatcher->sessions().size());
  if (dispatcher->Drain(timeout)) return;
  spdlog::warn("{} requests cut off", dispatcher->sessions().size());
  dispatcher->EndAll();
}

InferenceLimits ApiLimits(const Limits& limits,
                          std::shared_ptr<rpc::Connections> connections,
                          TickThread* ticks) {
  InferenceLimits api = limits.inference;
  api.receiving.received =
      [connections = std::move(connections)](const std::string& peer) {
        return connections->Received(peer);
      };
  api.wake_at = [ticks](int64_t at_ns) { ticks->WakeAt(at_ns); };
  return api;
}

void LogAddresses(const CoordinatorServers& servers,
                  const CoordinatorSecurity& security) {
  spdlog::info("clients: {} ({}), workers: {}, operators: {} ({})",
               servers.inference().address(),
               security.clients == nullptr ? "plaintext" : "TLS",
               servers.registry().address(), servers.admin().address(),
               security.peers.server == nullptr ? "plaintext" : "TLS");
}

// Until the process is told to end, and then until no request runs.
void ServeAndDrain(absl::Duration drain_timeout, Dispatcher* dispatcher,
                   Health* health) {
  HeapTrimmer trimmer({});
  trimmer.Start();
  rpc::WaitForTerminationSignal();
  health->Drain();
  DrainRequests(dispatcher, drain_timeout);
}

absl::Status Run(const Flags& flags) {
  NACRE_ASSIGN_OR_RETURN(const LogOptions log_options, flags.log.Parse());
  const Logging logging("coordinator", log_options);
  const rpc::GrpcLog grpc_log;
  const std::string& model_dir = flags.tokenizer;
  if (model_dir.empty()) {
    return absl::InvalidArgumentError("--tokenizer MODEL_DIR is required");
  }
  NACRE_ASSIGN_OR_RETURN(const Limits limits, flags.limits.Resolve());
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<tokenizer::Tokenizer> tokenizer,
                         tokenizer::LoadTokenizer(model_dir));
  spdlog::info("tokenizer {}: {} pieces", model_dir, tokenizer->vocab_size());

  NACRE_ASSIGN_OR_RETURN(Observability::Options observability_options,
                         ObservabilityOptions(flags));
  Observability observability(std::move(observability_options));
  NACRE_ASSIGN_OR_RETURN(const CoordinatorSecurity security,
                         flags.security.Load());

  TickThread ticks;  // stopped before the dispatcher goes
  Dispatcher::Options options{
      .tokenizer = tokenizer.get(),
      .observer = observability.observer(),
      .wake_at = [&ticks](int64_t at_ns) { ticks.WakeAt(at_ns); }};
  limits.ApplyTo(&options);
  Dispatcher dispatcher(std::move(options));
  RegistryService registry(&dispatcher, tokenizer.get(),
                           {.security = security.peers.channel,
                            .served_model_name = flags.served_model_name,
                            .worker_timeout_ns = limits.worker_timeout_ns});
  const auto connections = std::make_shared<rpc::Connections>();
  InferenceService inference(
      &dispatcher, tokenizer.get(), observability.observer(),
      ApiLimits(limits, connections, &ticks), security.authenticator.get());
  AdminService admin(&dispatcher, &registry, security.authenticator.get());
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<CoordinatorServers> servers,
                         StartServers(flags, security, limits, connections,
                                      {&inference, &registry, &admin}));
  observability.SetServer(servers->inference().address());
  Health health(HealthOptions(limits, &ticks, servers.get()));
  NACRE_RETURN_IF_ERROR(observability.Start(
      &registry, &dispatcher, [&health] { return health.state(); }));
  ticks.Start([&dispatcher, &registry, &inference, &health] {
    const int64_t next_ns =
        std::min({dispatcher.Tick(), registry.Tick(), inference.Tick()});
    health.OnTick(dispatcher.workers());
    return next_ns;
  });
  LogAddresses(*servers, security);
  ServeAndDrain(flags.drain_timeout, &dispatcher, &health);
  registry.Shutdown();
  servers->Shutdown(absl::Seconds(1));
  ticks.Stop();
  observability.Stop();
  return absl::OkStatus();
}

}  // namespace
}  // namespace nacre::coordinator

int main(int argc, char** argv) {
  nacre::StartWithSmallHeap(argv);
  nacre::DisableMutexChecks();
  nacre::rpc::BlockTerminationSignals();
  return nacre::telemetry::RunProgram(
      argc, argv, "nacre-coordinator",
      "Public API, tokenizer and speculation schedule of "
      "Nacre; clients, workers and operators call it.",
      nacre::coordinator::Run);
}
