#include "worker/process/process.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/logging.h"
#include "common/mutex_checks.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/security.h"
#include "common/rpc/server.h"
#include "common/rpc/signals.h"
#include "common/status_macros.h"
#include "model/draft_files.h"
#include "telemetry/build_info.h"
#include "telemetry/metrics_server.h"
#include "wire/hello_codec.h"
#include "worker/engine/engine_metrics.h"
#include "worker/engine/engine_thread.h"
#include "worker/engine/warm_up.h"
#include "worker/process/coordinator_list.h"
#include "worker/process/coordinator_metrics.h"
#include "worker/process/coordinators.h"
#include "worker/process/drain.h"
#include "worker/process/exit_signal.h"
#include "worker/process/health.h"
#include "worker/process/heartbeat_convert.h"
#include "worker/process/load.h"
#include "worker/process/nodes.h"
#include "worker/process/options.h"
#include "worker/process/registration.h"
#include "worker/tensors/tensor_metrics.h"

namespace nacre::worker {
namespace {

// Waits for SIGINT or SIGTERM beside everything else. Before there is anything
// to drain, and the second time, a signal ends the process.
class SignalThread {
 public:
  explicit SignalThread(ExitSignal* exit) {
    std::thread([exit, serving = serving_] {
      rpc::WaitForTerminationSignal();
      if (!*serving) std::_Exit(EXIT_SUCCESS);
      exit->Drain();
      // Only this thread lets a second signal through.
      while (true) pause();
    }).detach();
  }
  void StartDraining() { *serving_ = true; }

 private:
  // Shared with a thread that nothing joins.
  std::shared_ptr<std::atomic<bool>> serving_ =
      std::make_shared<std::atomic<bool>>(false);
};

// Of a coordinator that is lost: returns when the engine has closed them. A
// hung engine closes nothing: its worker attaches as hung.
void CloseSessions(uint64_t coordinator, const WorkerParts& parts,
                   const Health& health, ExitSignal* exit) {
  parts.service->AbandonStreams(coordinator);
  const uint64_t pushed = parts.service->pushed();
  while (parts.engine->stats().messages < pushed && !health.hung() &&
         exit->failure().ok()) {
    exit->WaitForFailure(absl::Milliseconds(1));
  }
}

Registration::Options RegistrationOptions(const LoadedModel& loaded,
                                          const wire::Hello& hello,
                                          const WorkerParts& parts,
                                          const Health* health,
                                          ExitSignal* exit) {
  Registration::Options result;
  result.hello = wire::Encode(hello);
  result.vocabulary_hash = [tokenizer = loaded.tokenizer.get()](int size) {
    return tokenizer->VocabularyHash(size);
  };
  result.on_attachment = [service = parts.service.get()](uint64_t coordinator,
                                                         uint64_t attachment) {
    service->SetAttachment(coordinator, attachment);
  };
  result.heartbeat = [engine = parts.engine.get(), health, exit](uint64_t) {
    v1::Heartbeat heartbeat;
    FillHeartbeat(engine->stats(), exit->draining(), &heartbeat);
    heartbeat.set_hung(health->unfit());
    return heartbeat;
  };
  result.kept_lists = [service = parts.service.get()](uint64_t coordinator) {
    return service->kept_lists(coordinator);
  };
  result.on_lost = [&parts, health, exit](uint64_t coordinator) {
    CloseSessions(coordinator, parts, *health, exit);
  };
  result.on_drain = [exit] { exit->Drain(); };
  return result;
}

absl::StatusOr<Coordinators::Options> CoordinatorsOptions(
    const WorkerOptions& options, const LoadedModel& loaded,
    const wire::Hello& hello, const WorkerParts& parts, const Health* health,
    ExitSignal* exit) {
  Coordinators::Options result;
  NACRE_ASSIGN_OR_RETURN(result.names, ParseCoordinators(options.coordinator));
  result.registration = RegistrationOptions(loaded, hello, parts, health, exit);
  result.on_refused = [exit](const absl::Status& status) {
    exit->Fail(absl::Status(
        status.code(),
        absl::StrCat("refused by the coordinator: ", status.message())));
  };
  return result;
}

TensorMetrics::Options TensorMetricsOptions(const std::string& address,
                                            const WorkerParts& parts) {
  TensorMetrics::Options result;
  result.worker = address;
  result.use = parts.tensor_use;
  if (parts.tensors.publisher != nullptr) {
    result.sent = [publisher = parts.tensors.publisher.get()] {
      return publisher->stats();
    };
  }
  if (parts.tensor_reader != nullptr) {
    result.received = [reader = parts.tensor_reader] {
      return reader->stats();
    };
  }
  return result;
}

// Null where it is not asked for.
absl::StatusOr<std::unique_ptr<telemetry::MetricsServer>> ServeMetrics(
    const WorkerOptions& options, const LoadedModel& loaded,
    const wire::Hello& hello, const WorkerParts& parts, const Health* health,
    std::shared_ptr<CoordinatorMetrics> coordinators) {
  if (options.metrics_listen.empty()) return nullptr;
  const Engine* const engine = parts.engine.get();
  EngineMetrics::Options metrics;
  metrics.role = hello.role == wire::WorkerRole::kDraft ? EngineRole::kDraft
                                                        : EngineRole::kTarget;
  metrics.worker = hello.address;
  metrics.kv_capacity_tokens = hello.kv_capacity_tokens;
  metrics.stats = [engine] { return engine->stats(); };
  if (loaded.backend != nullptr && options.compute.backend.kind == "cuda") {
    metrics.step_lists = [backend = loaded.backend.get()] {
      return backend->graph_counts();
    };
  }
  NACRE_ASSIGN_OR_RETURN(
      std::unique_ptr<telemetry::MetricsServer> server,
      telemetry::MetricsServer::Start(
          {options.metrics_listen, options.metrics_address_file},
          {std::make_shared<EngineMetrics>(std::move(metrics)),
           std::make_shared<TensorMetrics>(
               TensorMetricsOptions(hello.address, parts)),
           std::move(coordinators)},
          [health] { return health->state(); }));
  spdlog::info("metrics on {}", server->address());
  return server;
}

void LogStepTimes(const std::vector<StepTime>& times) {
  spdlog::info("step times: {}",
               absl::StrJoin(times, ", ", [](std::string* out, StepTime time) {
                 absl::StrAppend(out, time.rows, " rows ",
                                 time.duration_ns / 1000, " us");
               }));
}

absl::StatusOr<std::unique_ptr<rpc::RpcServer>> StartServer(
    const WorkerOptions& options, const rpc::PeerSecurity& security,
    const WorkerParts& parts) {
  rpc::RpcServer::Options server;
  server.listen = options.listen;
  server.address_file = options.address_file;
  server.credentials = security.server;
  std::vector<grpc::Service*> services = {parts.service->grpc_service()};
  if (parts.tensors.service != nullptr) {
    services.push_back(parts.tensors.service);
  }
  return rpc::RpcServer::Start(server, services);
}

EngineThread::Options ThreadOptions(const WorkerOptions& options,
                                    const LoadedModel& loaded,
                                    const WorkerParts& parts,
                                    wire::WorkerRole role, ExitSignal* exit) {
  EngineThread::Options thread;
  thread.model = loaded.model.get();
  thread.engine = parts.engine.get();
  if (role == wire::WorkerRole::kDraft && !parts.drafts_chains) {
    thread.row_use = RowUse::kRanked;
  }
  thread.on_failure = [exit](const absl::Status& status) {
    exit->Fail(status);
  };
  if (loaded.paced != nullptr) {
    thread.stop_waits = [paced = loaded.paced] { paced->StopWaiting(); };
  }
  thread.stop_timeout = options.pace.hang_timeout;
  return thread;
}

Health::Options HealthOptions(const WorkerOptions& options,
                              const WorkerParts& parts,
                              rpc::RpcServer* server) {
  Health::Options health;
  health.engine = parts.engine.get();
  health.set_serving = [server](const std::string& service, bool serving) {
    server->SetServing(service, serving);
  };
  health.hang_timeout = options.pace.hang_timeout;
  return health;
}

// Registered until the process is to exit; then, unless something has failed,
// until its sessions have ended.
void StayRegistered(Coordinators::Options coordinators_options,
                    absl::Duration drain_timeout, const WorkerParts& parts,
                    CoordinatorMetrics* metrics, Health* health,
                    ExitSignal* exit) {
  SessionService* const service = parts.service.get();
  Coordinators coordinators(std::move(coordinators_options));
  service->SetOnReport(
      [&coordinators](uint64_t coordinator, const wire::KvReport& report) {
        coordinators.OnReport(coordinator, report);
      });
  metrics->SetStates([&coordinators] { return coordinators.states(); });
  exit->Wait();
  health->Drain();
  if (exit->failure().ok()) {
    coordinators.SendHeartbeat();
    DrainOptions drain;
    drain.stats = [&parts] { return parts.engine->stats(); };
    drain.is_known = [&coordinators, service](const EngineStats& stats) {
      // What has come had been applied when the stats were taken.
      return coordinators.IsDrainKnown() && stats.messages >= service->pushed();
    };
    drain.timeout = drain_timeout;
    DrainSessions(drain, exit);
  }
  metrics->SetStates(nullptr);
  service->SetOnReport(nullptr);
}

void EndStreams(const WorkerParts& parts) {
  const char* const stopping = "the worker is stopping";
  parts.service->FinishStreams(
      grpc::Status(grpc::StatusCode::UNAVAILABLE, stopping));
  if (parts.tensors.publisher != nullptr) {
    parts.tensors.publisher->EndReaders(absl::UnavailableError(stopping));
  }
}

void PrintFailure(const std::string& program, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", program.c_str(),
               std::string(status.message()).c_str());
}

// Serves what is loaded, to the end. `leader`: of a model on several nodes.
absl::Status ServeLoaded(const WorkerOptions& options,
                         const WorkerProgram& program,
                         const rpc::PeerSecurity& security,
                         const LoadedModel& loaded, NodeLeader* leader,
                         SignalThread* signals, ExitSignal* exit) {
  NACRE_ASSIGN_OR_RETURN(
      const WorkerParts parts,
      program.build(loaded.model.get(), options, security.channel));
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::RpcServer> server,
                         StartServer(options, security, parts));
  EngineThread engine_thread(
      ThreadOptions(options, loaded, parts, program.role, exit));
  const absl::StatusOr<std::vector<StepTime>> step_times =
      engine_thread.WaitForWarmUp();
  if (!step_times.ok()) {
    return model::InDraftFile(options.model_dir, step_times.status());
  }
  LogStepTimes(*step_times);
  wire::Hello hello =
      MakeHello(options, loaded, program.role, server->address(), *step_times);
  hello.policy_files = parts.policy_files;
  hello.drafts_chains = parts.drafts_chains;
  Health health(HealthOptions(options, parts, server.get()));
  const auto coordinator_metrics = std::make_shared<CoordinatorMetrics>(
      hello.role == wire::WorkerRole::kDraft ? "draft" : "target",
      hello.address);
  NACRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<telemetry::MetricsServer> metrics_server,
      ServeMetrics(options, loaded, hello, parts, &health,
                   coordinator_metrics));
  signals->StartDraining();
  if (leader != nullptr) leader->StartServing();
  spdlog::info("serving on {} ({})", server->address(),
               security.server == nullptr ? "plaintext" : "TLS");
  NACRE_ASSIGN_OR_RETURN(
      Coordinators::Options coordinators,
      CoordinatorsOptions(options, loaded, hello, parts, &health, exit));
  coordinators.registration.security = security.channel;
  StayRegistered(std::move(coordinators), options.drain_timeout, parts,
                 coordinator_metrics.get(), &health, exit);
  EndStreams(parts);
  server->Shutdown(absl::Seconds(1));
  absl::Status end = exit->failure();
  if (leader != nullptr) leader->End(end);
  if (end.ok()) spdlog::info("stopped");
  return end;
}

absl::Status Serve(const WorkerOptions& options, const WorkerProgram& program) {
  NACRE_ASSIGN_OR_RETURN(const LogOptions log_options, options.log.Parse());
  const Logging logging(program.name, log_options);
  const rpc::GrpcLog grpc_log;
  // Shared with a detached thread: never destroyed.
  static ExitSignal& exit = *new ExitSignal;
  SignalThread signals(&exit);
  NACRE_ASSIGN_OR_RETURN(const rpc::PeerSecurity security,
                         rpc::LoadPeerSecurity(options.tls));
  const NodeProcess process = {
      &exit, [&program](const absl::Status& status) {
        if (!status.ok()) {
          PrintFailure(program.name, status);
        }
        std::_Exit(status.ok() ? EXIT_SUCCESS : EXIT_FAILURE);
      }};
  if (options.nodes.follows()) {
    return RunFollower(
        options, program.role, security.channel,
        [&signals] { signals.StartDraining(); }, process);
  }
  // What others have to hear of first.
  if (options.nodes.nodes > 1) signals.StartDraining();
  NACRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<NodeLeader> leader,
      NodeLeader::Start(options, program.role, security, process));
  const absl::StatusOr<LoadedModel> loaded =
      LoadForWorker(options, program.role, {}, leader.get());
  absl::Status status = loaded.ok()
                            ? ServeLoaded(options, program, security, *loaded,
                                          leader.get(), &signals, &exit)
                            : loaded.status();
  // Before the model goes, of which the others would hear otherwise.
  if (!status.ok() && leader != nullptr) leader->Fail(status);
  return status;
}

// Before the first call of CUDA, and before there are threads.
void LoadKernelsAtOnce(const WorkerOptions& options) {
  if (options.compute.backend.rank_transport != "peer") return;
  // To load one in a step may wait for a GPU, which waits for this rank.
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
}

}  // namespace

int RunWorker(int argc, char** argv, const WorkerProgram& program) {
  DisableMutexChecks();
  rpc::BlockTerminationSignals();
  WorkerOptions options;
  FlagSet flags(program.name, program.summary);
  options.Register(&flags);
  absl::Status status = flags.Parse({argv + 1, argv + argc});
  if (status.ok() && flags.help_requested()) {
    std::fputs(flags.Help().c_str(), stdout);
    return EXIT_SUCCESS;
  }
  if (status.ok() && flags.version_requested()) {
    std::puts(telemetry::VersionText(program.name).c_str());
    return EXIT_SUCCESS;
  }
  if (status.ok()) status = Validate(options);
  if (status.ok() && program.check != nullptr) status = program.check(options);
  LoadKernelsAtOnce(options);
  if (status.ok()) status = Serve(options, program);
  if (!status.ok()) {
    PrintFailure(program.name, status);
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

}  // namespace nacre::worker
