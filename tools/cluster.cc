#include "tools/cluster.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/rpc/bearer_tokens.h"
#include "common/status_macros.h"
#include "kernels/backend_factory.h"
#include "tools/cpu_list.h"
#include "tools/prompts_file.h"
#include "tools/readiness.h"

namespace nacre::tools {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(20);
constexpr absl::Duration kProgressInterval = absl::Seconds(1);
// Workers go first: the coordinator lets running requests end.
constexpr int kWorkerStage = 0;
constexpr int kCoordinatorStage = 1;
constexpr char kCoordinator[] = "coordinator";

std::string OwnFolder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error)
      .parent_path()
      .string();
}

// The last line of a log that is not empty; "" if there is none.
std::string LastLine(const std::string& path) {
  const absl::StatusOr<std::string> log = ReadFile(path);
  if (!log.ok()) return "";
  const absl::string_view text = absl::StripAsciiWhitespace(*log);
  const size_t newline = text.rfind('\n');
  return std::string(
      newline == absl::string_view::npos ? text : text.substr(newline + 1));
}

}  // namespace

void Cluster::Options::Register(FlagSet* flags) {
  flags->Add("target-model", "DIR", &target_model,
             "checkpoint of the target, the model that decides");
  flags->Add("draft-model", "DIR", &draft_model,
             "checkpoint of the draft, the model that proposes");
  flags->Add("targets", "N", &targets, "target workers");
  flags->Add("drafts", "N", &drafts, "draft workers; 0: no speculation");
  flags->Add("backend", "B", &backend, "kernels of the workers");
  flags->Add("device", "N", &device, "accelerator of the workers");
  flags->Add("weights", "T", &weights, "type that weights are kept in");
  flags->Add("cpus", "LIST", &cpus,
             "cores to deal out to the workers, as in 0-3,6 (default: all)");
  flags->Add("max-memory", "BYTES", &max_memory,
             "most memory of a worker; K, M and G may follow");
  flags->Add("prefix-cache", "on|off", &prefix_cache,
             "whether prompts that begin alike share KV");
}

absl::Status Cluster::Options::Validate() const {
  if (target_model.empty()) {
    return absl::InvalidArgumentError("flag --target-model is needed");
  }
  if (draft_model.empty() && drafts != 0) {
    return absl::InvalidArgumentError(
        "flag --draft-model is needed, or --drafts 0");
  }
  if (targets < 1 || targets > 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --targets: ", targets, " is not in 1..64"));
  }
  if (drafts < 0 || drafts > 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --drafts: ", drafts, " is not in 0..64"));
  }
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --port: ", port, " is not in 0..65535"));
  }
  if (!cpus.empty()) {
    const auto parsed = kernels::ParseCpuList(cpus);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag --cpus: ", parsed.status().message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Start(Options options) {
  NACRE_RETURN_IF_ERROR(options.Validate());
  if (options.bin_dir.empty()) options.bin_dir = OwnFolder();
  auto cluster = absl::WrapUnique(new Cluster(std::move(options)));
  NACRE_RETURN_IF_ERROR(cluster->Launch());
  return cluster;
}

Cluster::Cluster(Options options)
    : options_(std::move(options)), supervisor_(options_.supervisor) {
  const auto add = [this](const char* role, const std::string& model,
                          int count) {
    for (int i = 0; i < count; ++i) {
      const std::string name = absl::StrCat(role, "-", i);
      workers_.push_back({name, role, model, ""});
    }
  };
  // Targets are dealt cores first.
  add("target", options_.target_model, options_.targets);
  add("draft", options_.draft_model, options_.drafts);
  const auto dealt =
      DealCpus(options_.cpus.empty() ? AvailableCpus()
                                     : *kernels::ParseCpuList(options_.cpus),
               static_cast<int>(workers_.size()));
  for (size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].cpus = FormatCpuList(dealt[i]);
  }
}

Cluster::~Cluster() { Drain(); }

void Cluster::Drain() { supervisor_.Drain(options_.drain_grace); }

absl::Status Cluster::Launch() {
  NACRE_ASSIGN_OR_RETURN(
      security_.channel,
      rpc::LoadClientTls({false, options_.tls, options_.tls_server_name}));
  if (!options_.auth_tokens_file.empty()) {
    NACRE_ASSIGN_OR_RETURN(const std::vector<rpc::NamedToken> tokens,
                           rpc::ReadTokens(options_.auth_tokens_file));
    security_.token = tokens.front().token;
  }
  const absl::Time deadline = absl::Now() + options_.ready_timeout;
  NACRE_RETURN_IF_ERROR(StartCoordinator(deadline));
  for (const Worker& worker : workers_) {
    NACRE_RETURN_IF_ERROR(StartWorker(worker));
  }
  NACRE_RETURN_IF_ERROR(WaitForWorkers(deadline));
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

void Cluster::AddTlsFlags(std::vector<std::string>* argv) const {
  const auto add = [argv](const char* flag, const std::string& value) {
    if (value.empty()) return;
    argv->push_back(flag);
    argv->push_back(value);
  };
  add("--tls-cert", options_.tls.cert_file);
  add("--tls-key", options_.tls.key_file);
  add("--tls-ca", options_.tls.ca_file);
  add("--tls-server-name", options_.tls_server_name);
}

std::vector<std::string> Cluster::CoordinatorArgv(
    const std::string& listen, const std::string& registry_listen,
    const std::string& admin_listen) const {
  std::vector<std::string> argv = {options_.bin_dir + "/nacre-coordinator",
                                   "--listen",
                                   listen,
                                   "--registry-listen",
                                   registry_listen,
                                   "--admin-listen",
                                   admin_listen,
                                   "--tokenizer",
                                   options_.target_model,
                                   "--address-file",
                                   AddressFile(""),
                                   "--registry-address-file",
                                   AddressFile("registry-"),
                                   "--admin-address-file",
                                   AddressFile("admin-")};
  AddTlsFlags(&argv);
  if (!options_.auth_tokens_file.empty()) {
    argv.push_back("--auth-tokens-file");
    argv.push_back(options_.auth_tokens_file);
  }
  argv.insert(argv.end(), options_.coordinator_args.begin(),
              options_.coordinator_args.end());
  return argv;
}

absl::Status Cluster::StartCoordinator(absl::Time deadline) {
  const std::string any = "127.0.0.1:0";
  NACRE_RETURN_IF_ERROR(supervisor_.Start(
      {kCoordinator,
       {CoordinatorArgv(absl::StrCat("127.0.0.1:", options_.port), any, any),
        LogFile(kCoordinator)},
       kCoordinatorStage}));
  while ((address_ = ReadAddress("")).empty() ||
         (registry_address_ = ReadAddress("registry-")).empty() ||
         (admin_address_ = ReadAddress("admin-")).empty()) {
    NACRE_RETURN_IF_ERROR(CheckStarting(deadline, "the coordinator"));
    absl::SleepFor(kPollInterval);
  }
  // After a restart clients and workers look for it where it was.
  supervisor_.SetArgv(kCoordinator, CoordinatorArgv(address_, registry_address_,
                                                    admin_address_));
  return absl::OkStatus();
}

absl::Status Cluster::StartWorker(const Worker& worker) {
  std::vector<std::string> argv = {
      absl::StrCat(options_.bin_dir, "/nacre-", worker.role, "-worker"),
      "--model",
      worker.model,
      "--coordinator",
      registry_address_,
      "--cpus",
      worker.cpus};
  const auto add = [&argv](const char* flag, const std::string& value) {
    argv.push_back(flag);
    argv.push_back(value);
  };
  if (!options_.backend.empty()) add("--backend", options_.backend);
  if (!options_.weights.empty()) add("--weights", options_.weights);
  if (options_.device) add("--device", absl::StrCat(*options_.device));
  if (!options_.max_memory.empty()) add("--max-memory", options_.max_memory);
  if (!options_.prefix_cache.empty()) {
    add("--prefix-cache", options_.prefix_cache);
  }
  AddTlsFlags(&argv);
  return supervisor_.Start(
      {worker.name, {std::move(argv), LogFile(worker.name)}, kWorkerStage});
}

absl::Status Cluster::CheckStarting(absl::Time deadline,
                                    absl::string_view awaited) {
  if (options_.interrupted && options_.interrupted()) {
    return absl::CancelledError("interrupted");
  }
  if (const auto ended = supervisor_.FindEnded(); ended.has_value()) {
    const std::string log = LogFile(ended->name);
    return absl::AbortedError(
        absl::StrCat(ended->name, " ended with ", ended->how, " while starting",
                     log.empty() ? "" : absl::StrCat(": ", LastLine(log))));
  }
  if (absl::Now() >= deadline) {
    return absl::DeadlineExceededError(
        absl::StrCat(awaited, " not ready after ",
                     absl::FormatDuration(options_.ready_timeout)));
  }
  return absl::OkStatus();
}

absl::Status Cluster::WaitForWorkers(absl::Time deadline) {
  const ReadinessProbe probe(admin_address_, address_, security_);
  const absl::Time start = absl::Now();
  absl::Time next_progress = start + kProgressInterval;
  while (true) {
    const ReadyWorkers ready = probe.Count();
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
    absl::SleepFor(kPollInterval);
  }
}

std::vector<std::string> Cluster::WorkerLines() const {
  std::vector<std::string> lines;
  for (const Worker& worker : workers_) {
    lines.push_back(
        absl::StrCat(worker.name, "  cpus ", worker.cpus, "  ", worker.model));
  }
  return lines;
}

}  // namespace nacre::tools
