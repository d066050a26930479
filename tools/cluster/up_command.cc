#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "common/flag_set.h"
#include "common/logging.h"
#include "common/status_macros.h"
#include "coordinator/limit_flags.h"
#include "gateway/served_flags.h"
#include "telemetry/trace_settings.h"
#include "tools/cluster/cluster.h"
#include "tools/commands.h"
#include "tools/interrupt.h"
#include "worker/process/options.h"

namespace nacre::tools {
namespace {

struct UpFlags {
  Cluster::Options cluster;
  // Handed on, as they are, to the processes that understand the same group:
  // these say what a bad value is.
  coordinator::LimitFlags limits;
  telemetry::TraceFlags traces;
  worker::PaceOptions pace;
  LogFlags log;
  gateway::ServedFlags served;
  std::string tls_client_auth;

  void Register(FlagSet* flags) {
    cluster.port = 50050;
    flags->Add("port", "P", &cluster.port,
               "for clients of the first coordinator, on the loopback address; "
               "0: a free one");
    cluster.Register(flags);
    flags->Add("metrics-port", "P", &cluster.metrics_port,
               "serve /metrics on the loopback address: the first coordinator "
               "there (0: a free port), the others and each worker on free "
               "ports");
    flags->Add("http-port", "P", &cluster.http_port,
               "serve OpenAI's HTTP API there, on the loopback address; 0: a "
               "free port");
    flags->BeginGroup("gateway");
    served.Register(flags);
    flags->BeginGroup("");
    RegisterTlsFiles(&cluster.tls, flags);
    flags->Add("tls-server-name", "NAME", &cluster.tls_server_name,
               "name in the certificate, where that is not 127.0.0.1");
    flags->Add("auth-tokens-file", "FILE", &cluster.auth_tokens_file,
               "one NAME:TOKEN a line: clients must show one of them");
    flags->Add("admin-tokens-file", "FILE", &cluster.admin_tokens_file,
               "the same for operators");
    flags->Add("drain-timeout", "DURATION", &cluster.drain_timeout,
               "how long each process waits for what runs when it is to stop");
    flags->BeginGroup("coordinator");
    limits.Register(flags);
    traces.Register(flags);
    flags->BeginGroup("worker");
    pace.Register(flags);
    flags->BeginGroup("all");
    log.Register(flags);
    flags->Add("tls-client-auth", "require|none", &tls_client_auth,
               "must workers and operators that call show a certificate? "
               "(default require)");
  }
  absl::Status Validate() const {
    NACRE_RETURN_IF_ERROR(limits.Resolve().status());
    NACRE_RETURN_IF_ERROR(log.Parse().status());
    NACRE_RETURN_IF_ERROR(served.Validate());
    return cluster.Validate();
  }
};

// Of a service without a draft worker.
std::string WhatDraftsAlone(const worker::OwnDraftFlags& targets) {
  std::vector<std::string> own;
  if (targets.suffix_drafter) own.push_back("suffixes");
  if (targets.kind() != nullptr) own.push_back(targets.kind()->name);
  if (own.empty()) return "no draft: nothing is drafted";
  return absl::StrCat("no draft: the targets draft from ",
                      absl::StrJoin(own, " and "));
}

}  // namespace

int UpCommand(const std::vector<std::string>& args, const Terminal& terminal) {
  UpFlags up_flags;
  FlagSet flags("nacre up",
                "Runs coordinators and their workers on this machine until "
                "Ctrl-C; restarts a process that dies. Without a flag a "
                "process keeps its own default: nacre-coordinator --help.");
  up_flags.Register(&flags);
  if (const auto exit = terminal.ReadFlags(args, &flags)) return *exit;
  Cluster::Options options = up_flags.cluster;
  options.HandOn(flags);
  for (const std::string& arg : flags.Given("all")) {
    options.more_args.coordinator.push_back(arg);
    // Its clients are not asked for certificates.
    if (absl::StartsWith(arg, "--log-")) {
      options.more_args.gateway.push_back(arg);
    }
    options.more_args.worker.push_back(arg);
  }
  if (absl::Status status = up_flags.Validate(); !status.ok()) {
    return terminal.FailUsage(status);
  }

  absl::Notification interrupted;
  InterruptWatcher watcher([&interrupted] { interrupted.Notify(); });
  options.interrupted = [&interrupted] {
    return interrupted.HasBeenNotified();
  };
  options.progress = [&terminal](const std::string& line) {
    terminal.Progress(line);
  };
  // Restarts are rare and must stay on the screen: a whole line each.
  options.supervisor.report = [&terminal](const std::string& line) {
    terminal.err << line << std::endl;
  };
  terminal.err << "loading " << options.target_model;
  if (options.drafts > 0) terminal.err << " and " << options.draft_model;
  terminal.err << std::endl;
  const auto cluster = Cluster::Start(options);
  terminal.EndProgress();
  if (absl::IsCancelled(cluster.status())) return kExitInterrupted;
  if (!cluster.ok()) return terminal.Fail(cluster.status());

  for (const Cluster::Coordinator& each : (*cluster)->coordinators()) {
    terminal.out << "coordinator " << each.clients << "\n"
                 << "registry    " << each.registry << "\n"
                 << "admin       " << each.admin << "\n";
    if (!each.metrics.empty()) {
      terminal.out << "metrics     " << each.metrics << "\n";
    }
  }
  if (!(*cluster)->http_address().empty()) {
    terminal.out << "http        " << (*cluster)->http_address() << "\n";
  }
  for (const std::string& line : (*cluster)->WorkerLines()) {
    terminal.out << line << "\n";
  }
  if (options.drafts == 0) {
    terminal.out << WhatDraftsAlone(options.workers.own_drafts) << "\n";
  }
  terminal.out << "ready; Ctrl-C stops" << std::endl;
  interrupted.WaitForNotification();
  terminal.err << "stopping" << std::endl;
  (*cluster)->Drain();
  return kExitOk;
}

}  // namespace nacre::tools
