#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tools/cluster.h"
#include "tools/commands.h"
#include "tools/flag_set.h"
#include "tools/interrupt.h"

namespace nacre::tools {

int UpCommand(const std::vector<std::string>& args, const Terminal& terminal) {
  Cluster::Options options;
  options.port = 50050;
  FlagSet flags("nacre up",
                "Runs a coordinator and its workers on this machine until "
                "Ctrl-C; restarts a process that dies.");
  flags.Add("port", "P", &options.port,
            "for clients, on the loopback address; 0: a free one");
  options.Register(&flags);
  RegisterTlsFiles(&options.tls, &flags);
  flags.Add("tls-server-name", "NAME", &options.tls_server_name,
            "name in the certificate, where that is not 127.0.0.1");
  flags.Add("auth-tokens-file", "FILE", &options.auth_tokens_file,
            "one NAME:TOKEN a line: clients must show one of them");
  if (absl::Status status = flags.Parse(args); !status.ok()) {
    return terminal.FailUsage(status);
  }
  if (flags.help_requested()) {
    terminal.out << flags.Help();
    return kExitOk;
  }
  if (absl::Status status = options.Validate(); !status.ok()) {
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
  terminal.err << "loading " << options.target_model << " and "
               << options.draft_model << std::endl;
  const auto cluster = Cluster::Start(options);
  terminal.EndProgress();
  if (absl::IsCancelled(cluster.status())) return kExitInterrupted;
  if (!cluster.ok()) return terminal.Fail(cluster.status());

  terminal.out << "coordinator " << (*cluster)->address() << "\n"
               << "registry    " << (*cluster)->registry_address() << "\n"
               << "admin       " << (*cluster)->admin_address() << "\n";
  for (const std::string& line : (*cluster)->WorkerLines()) {
    terminal.out << line << "\n";
  }
  terminal.out << "ready; Ctrl-C stops" << std::endl;
  interrupted.WaitForNotification();
  terminal.err << "stopping" << std::endl;
  (*cluster)->Drain();
  return kExitOk;
}

}  // namespace nacre::tools
