#include "tools/cluster/cluster.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/cpu_list.h"
#include "common/files.h"
#include "common/rpc/bearer_tokens.h"
#include "common/status_macros.h"
#include "kernels/backend_factory.h"
#include "model/eagle_folder.h"
#include "tools/cluster/readiness.h"

namespace nacre::tools {
namespace {

constexpr absl::Duration kHealthPollInterval = absl::Milliseconds(20);
constexpr absl::Duration kProgressInterval = absl::Seconds(1);
// The gateway goes first: it takes nothing new and lets its answers end. Then
// workers: the coordinator lets running requests end.
constexpr int kGatewayStage = 0;
constexpr int kWorkerStage = 1;
constexpr int kCoordinatorStage = 2;
constexpr char kCoordinator[] = "coordinator";
constexpr char kGateway[] = "gateway";
constexpr char kAnyPort[] = "127.0.0.1:0";
// What a process may take to end once it has drained.
constexpr absl::Duration kExitGrace = absl::Seconds(5);

std::string OwnFolder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error)
      .parent_path()
      .string();
}

std::string Loopback(int port) { return absl::StrCat("127.0.0.1:", port); }

// A command line; flags without a value are left out.
class Argv {
 public:
  explicit Argv(std::string program) : args_{std::move(program)} {}

  void Add(const char* flag, const std::string& value) {
    if (value.empty()) return;
    args_.push_back(flag);
    args_.push_back(value);
  }
  // What all processes take.
  void AddCommon(const Cluster::Options& options) {
    Add("--tls-cert", options.tls.cert_file);
    Add("--tls-key", options.tls.key_file);
    Add("--tls-ca", options.tls.ca_file);
    Add("--tls-server-name", options.tls_server_name);
    if (options.drain_timeout.has_value()) {
      Add("--drain-timeout", absl::FormatDuration(*options.drain_timeout));
    }
  }
  std::vector<std::string> With(const std::vector<std::string>& more) && {
    args_.insert(args_.end(), more.begin(), more.end());
    return std::move(args_);
  }

 private:
  std::vector<std::string> args_;
};

// How a holder of the file's first token calls; "" is none.
absl::StatusOr<ClientSecurity> SecurityWith(const rpc::ChannelSecurity& channel,
                                            const std::string& tokens_file) {
  if (tokens_file.empty()) return ClientSecurity{channel, ""};
  NACRE_ASSIGN_OR_RETURN(const std::vector<rpc::NamedToken> tokens,
                         rpc::ReadTokens(tokens_file));
  return ClientSecurity{channel, tokens.front().token};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Start(Options options) {
  NACRE_RETURN_IF_ERROR(options.Validate());
  if (options.bin_dir.empty()) options.bin_dir = OwnFolder();
  auto cluster = absl::WrapUnique(new Cluster(std::move(options)));
  NACRE_RETURN_IF_ERROR(cluster->Launch());
  return cluster;
}

Cluster::Cluster(Options options)
    : options_(std::move(options)), supervisor_(options_.supervisor) {
  const int count = options_.coordinators;
  for (int i = 0; i < count; ++i) {
    coordinators_.push_back(
        {count == 1 ? kCoordinator : absl::StrCat(kCoordinator, "-", i),
         i == 0 ? Loopback(options_.port) : kAnyPort, kAnyPort, kAnyPort, ""});
    if (options_.metrics_port.has_value()) {
      coordinators_.back().metrics =
          i == 0 ? Loopback(*options_.metrics_port) : kAnyPort;
    }
  }
  const auto add = [this](const char* role, const std::string& model, int num) {
    for (int i = 0; i < num; ++i) {
      const std::string name = absl::StrCat(role, "-", i);
      workers_.push_back({name, role, model, "", ""});
    }
  };
  // Targets are dealt cores first.
  add("target", options_.target_model, options_.targets);
  add("draft", options_.draft_model, options_.drafts);
  const auto dealt = DealCpus(
      options_.cpus.empty() ? AvailableCpus() : *ParseCpuList(options_.cpus),
      static_cast<int>(workers_.size()));
  for (size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].cpus = FormatCpuList(dealt[i]);
  }
}

Cluster::~Cluster() { Drain(); }

void Cluster::Drain() {
  supervisor_.Drain(options_.drain_timeout.has_value()
                        ? *options_.drain_timeout + kExitGrace
                        : options_.drain_grace);
}

absl::Status Cluster::Launch() {
  NACRE_ASSIGN_OR_RETURN(
      const rpc::ChannelSecurity channel,
      rpc::LoadClientTls({false, options_.tls, options_.tls_server_name}));
  NACRE_ASSIGN_OR_RETURN(security_,
                         SecurityWith(channel, options_.auth_tokens_file));
  NACRE_ASSIGN_OR_RETURN(operator_security_,
                         SecurityWith(channel, options_.admin_tokens_file));
  const absl::Time deadline = absl::Now() + options_.ready_timeout;
  NACRE_RETURN_IF_ERROR(StartCoordinators(deadline));
  for (const Worker& worker : workers_) {
    NACRE_RETURN_IF_ERROR(
        supervisor_.Start({worker.name,
                           {WorkerArgv(worker), LogFile(worker.name)},
                           kWorkerStage}));
  }
  NACRE_RETURN_IF_ERROR(WaitForWorkers(deadline));
  NACRE_RETURN_IF_ERROR(FindWorkerMetrics(deadline));
  NACRE_RETURN_IF_ERROR(StartGateway(deadline));
  supervisor_.Supervise();
  return absl::OkStatus();
}

std::string Cluster::LogFile(const std::string& name) const {
  if (options_.log_dir.empty()) return "";
  return absl::StrCat(options_.log_dir, "/", name, ".log");
}

std::string Cluster::AddressFile(const std::string& port) const {
  return absl::StrCat(run_dir_.path(), "/", port, "address");
}

std::string Cluster::ReadAddress(const std::string& port) const {
  const auto address = ReadFile(AddressFile(port));
  return address.ok() ? std::string(absl::StripAsciiWhitespace(*address)) : "";
}

std::vector<std::string> Cluster::CoordinatorArgv(
    const Coordinator& coordinator) const {
  const std::string& name = coordinator.name;
  Argv argv(options_.bin_dir + "/nacre-coordinator");
  argv.Add("--listen", coordinator.clients);
  argv.Add("--registry-listen", coordinator.registry);
  argv.Add("--admin-listen", coordinator.admin);
  argv.Add("--tokenizer", options_.target_model);
  argv.Add("--address-file", AddressFile(name + "-"));
  argv.Add("--registry-address-file", AddressFile(name + "-registry-"));
  argv.Add("--admin-address-file", AddressFile(name + "-admin-"));
  if (!coordinator.metrics.empty()) {
    argv.Add("--metrics-listen", coordinator.metrics);
    argv.Add("--metrics-address-file", AddressFile(name + "-metrics-"));
  }
  argv.AddCommon(options_);
  argv.Add("--auth-tokens-file", options_.auth_tokens_file);
  argv.Add("--admin-tokens-file", options_.admin_tokens_file);
  return std::move(argv).With(options_.more_args.coordinator);
}

Cluster::Coordinator Cluster::ReadPorts(const std::string& name) const {
  return {name, ReadAddress(name + "-"), ReadAddress(name + "-registry-"),
          ReadAddress(name + "-admin-"), ReadAddress(name + "-metrics-")};
}

absl::Status Cluster::StartCoordinators(absl::Time deadline) {
  for (const Coordinator& coordinator : coordinators_) {
    NACRE_RETURN_IF_ERROR(supervisor_.Start(
        {coordinator.name,
         {CoordinatorArgv(coordinator), LogFile(coordinator.name)},
         kCoordinatorStage}));
  }
  for (Coordinator& coordinator : coordinators_) {
    Coordinator bound = ReadPorts(coordinator.name);
    while (bound.clients.empty() || bound.registry.empty() ||
           bound.admin.empty() ||
           bound.metrics.empty() != coordinator.metrics.empty()) {
      NACRE_RETURN_IF_ERROR(CheckStarting(deadline, "the coordinator"));
      absl::SleepFor(kHealthPollInterval);
      bound = ReadPorts(coordinator.name);
    }
    coordinator = std::move(bound);
    // After a restart clients and workers look for it where it was.
    supervisor_.SetArgv(coordinator.name, CoordinatorArgv(coordinator));
  }
  return absl::OkStatus();
}

std::string Cluster::Joined(std::string Coordinator::*address) const {
  return absl::StrJoin(coordinators_, ",",
                       [&](std::string* out, const Coordinator& each) {
                         absl::StrAppend(out, each.*address);
                       });
}

std::vector<std::string> Cluster::GatewayArgv(const std::string& listen) const {
  Argv argv(options_.bin_dir + "/nacre-gateway");
  argv.Add("--listen", listen);
  argv.Add("--coordinator", Joined(&Coordinator::clients));
  argv.Add("--tokenizer", options_.target_model);
  argv.Add("--address-file", AddressFile("http-"));
  // No proxy is in front, whose connections should not break.
  argv.Add("--drain-idle", "0s");
  argv.AddCommon(options_);
  argv.Add("--public-tls-cert", options_.tls.cert_file);
  argv.Add("--public-tls-key", options_.tls.key_file);
  argv.Add("--auth-tokens-file", options_.auth_tokens_file);
  argv.Add("--token-file", options_.auth_tokens_file);
  // With tokens of clients alone there is none of an operator to show.
  if (options_.auth_tokens_file.empty() ||
      !options_.admin_tokens_file.empty()) {
    argv.Add("--admin", Joined(&Coordinator::admin));
    argv.Add("--admin-tokens-file", options_.admin_tokens_file);
  }
  return std::move(argv).With(options_.more_args.gateway);
}

// It waits for no model: it answers as soon as a coordinator does.
absl::Status Cluster::StartGateway(absl::Time deadline) {
  if (!options_.http_port.has_value()) return absl::OkStatus();
  NACRE_RETURN_IF_ERROR(supervisor_.Start(
      {kGateway,
       {GatewayArgv(Loopback(*options_.http_port)), LogFile(kGateway)},
       kGatewayStage}));
  while ((http_address_ = ReadAddress("http-")).empty()) {
    NACRE_RETURN_IF_ERROR(CheckStarting(deadline, "the gateway"));
    absl::SleepFor(kHealthPollInterval);
  }
  // After a restart clients look for it where it was.
  supervisor_.SetArgv(kGateway, GatewayArgv(http_address_));
  return absl::OkStatus();
}

std::vector<std::string> Cluster::WorkerArgv(const Worker& worker) const {
  Argv argv(absl::StrCat(options_.bin_dir, "/nacre-", worker.role, "-worker"));
  argv.Add("--model", worker.model);
  argv.Add("--coordinator", Joined(&Coordinator::registry));
  argv.Add("--cpus", worker.cpus);
  const bool is_draft = worker.role == "draft";
  if (is_draft) argv.Add("--target-tokenizer", options_.target_model);
  if (!is_draft && options_.drafts > 0 &&
      model::IsEagle(options_.draft_model)) {
    argv.Add("--publish-features", options_.draft_model);
  }
  if (options_.metrics_port.has_value()) {
    argv.Add("--metrics-listen",
             worker.metrics.empty() ? kAnyPort : worker.metrics);
    argv.Add("--metrics-address-file", AddressFile(worker.name + "-metrics-"));
  }
  argv.AddCommon(options_);
  std::vector<std::string> more = options_.more_args.worker;
  const std::vector<std::string>& own =
      is_draft ? options_.more_args.draft : options_.more_args.target;
  more.insert(more.end(), own.begin(), own.end());
  return std::move(argv).With(more);
}

absl::Status Cluster::FindWorkerMetrics(absl::Time deadline) {
  if (!options_.metrics_port.has_value()) return absl::OkStatus();
  for (Worker& worker : workers_) {
    while ((worker.metrics = ReadAddress(worker.name + "-metrics-")).empty()) {
      NACRE_RETURN_IF_ERROR(
          CheckStarting(deadline, absl::StrCat("/metrics of ", worker.name)));
      absl::SleepFor(kHealthPollInterval);
    }
    // After a restart Prometheus looks for it where it was.
    supervisor_.SetArgv(worker.name, WorkerArgv(worker));
  }
  return absl::OkStatus();
}

absl::Status Cluster::CheckStarting(absl::Time deadline,
                                    absl::string_view awaited) {
  if (options_.interrupted && options_.interrupted()) {
    return absl::CancelledError("interrupted");
  }
  if (const auto ended = supervisor_.FindEnded(); ended.has_value()) {
    return absl::AbortedError(absl::StrCat(
        ended->name, " ended with ", ended->how, " while starting", ended->why,
        ended->last_line.empty() ? "" : ": ", ended->last_line));
  }
  if (absl::Now() >= deadline) {
    return absl::DeadlineExceededError(
        absl::StrCat(awaited, " not ready after ",
                     absl::FormatDuration(options_.ready_timeout)));
  }
  return absl::OkStatus();
}

absl::Status Cluster::WaitForWorkers(absl::Time deadline) {
  std::vector<std::unique_ptr<ReadinessProbe>> probes;
  probes.reserve(coordinators_.size());
  for (const Coordinator& each : coordinators_) {
    probes.push_back(std::make_unique<ReadinessProbe>(
        Door{each.admin, operator_security_}, Door{each.clients, security_}));
  }
  const absl::Time start = absl::Now();
  absl::Time next_progress = start + kProgressInterval;
  while (true) {
    ReadyWorkers ready = probes[0]->Count();
    for (size_t i = 1; i < probes.size(); ++i) {
      const ReadyWorkers there = probes[i]->Count();
      ready.targets = std::min(ready.targets, there.targets);
      ready.drafts = std::min(ready.drafts, there.drafts);
      ready.model_known = ready.model_known && there.model_known;
    }
    if (ready.targets >= options_.targets && ready.drafts >= options_.drafts &&
        ready.model_known) {
      return absl::OkStatus();
    }
    const std::string awaited = absl::StrFormat(
        "%d of %d target workers and %d of %d draft workers", ready.targets,
        options_.targets, ready.drafts, options_.drafts);
    NACRE_RETURN_IF_ERROR(CheckStarting(
        deadline, absl::StrCat("the cluster (ready: ", awaited, ")")));
    if (options_.progress && absl::Now() >= next_progress) {
      options_.progress(
          absl::StrFormat("loading: %s ready (%.0f s)", awaited,
                          absl::ToDoubleSeconds(absl::Now() - start)));
      next_progress += kProgressInterval;
    }
    absl::SleepFor(kHealthPollInterval);
  }
}

std::vector<std::string> Cluster::WorkerLines() const {
  std::vector<std::string> lines;
  lines.reserve(workers_.size());
  for (const Worker& worker : workers_) {
    lines.push_back(absl::StrCat(
        worker.name, "  cpus ", worker.cpus, "  ", worker.model,
        worker.metrics.empty() ? "" : "  metrics ", worker.metrics));
  }
  return lines;
}

}  // namespace nacre::tools
