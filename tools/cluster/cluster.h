// A coordinator and its workers as child processes on this machine: what
// `nacre up` and `nacre bench` run.

#ifndef TOOLS_CLUSTER_CLUSTER_H_
#define TOOLS_CLUSTER_CLUSTER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/flag_set.h"
#include "common/rpc/security.h"
#include "tools/cluster/security_flags.h"
#include "tools/cluster/supervisor.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::tools {

// Owns the processes. Not thread-safe; the thread that calls Start must outlive
// the cluster.
class Cluster {
 public:
  // Passed to every worker where set.
  struct WorkerFlags {
    std::string backend;
    std::string weights;
    std::string kv_type;
    std::string max_memory;
    std::string prefix_cache;    // "on" or "off"
    std::string suffix_drafter;  // likewise; of the targets
    std::string suffix_cache;    // bytes; of the targets
    std::optional<int> device;
    // Of the drafts, where they are not those of the targets.
    std::string draft_backend;
    std::optional<int> draft_device;
    // What a step takes at least, as of the workers' --step-time; empty: what
    // it takes.
    std::string target_step_time;
    std::string draft_step_time;
  };

  // More flags for processes.
  struct MoreArgs {
    std::vector<std::string> coordinator;
    std::vector<std::string> gateway;
    std::vector<std::string> worker;  // each
    std::vector<std::string> draft;   // each, besides
    std::vector<std::string> target;  // likewise
  };

  struct Options {
    std::string target_model;  // checkpoint folders
    std::string draft_model;   // may be empty with drafts = 0
    int port = 0;              // of the coordinator, for clients; 0: a free one
    int targets = 1;
    int drafts = 1;
    WorkerFlags workers;
    std::string cpus;  // cores to deal out; empty: all this process may use

    // All processes show this certificate, which must be good for 127.0.0.1 or
    // for tls_server_name. Empty: plaintext.
    rpc::TlsFiles tls;
    std::string tls_server_name;
    // Clients, and operators, must show one of its tokens; empty: none.
    std::string auth_tokens_file;
    std::string admin_tokens_file;
    // The coordinator serves /metrics there on the loopback address (0: a free
    // port), each worker on a free port. Unset: none does.
    std::optional<int> metrics_port;
    // A gateway serves HTTP there on the loopback address (0: a free port).
    // Unset: there is none.
    std::optional<int> http_port;
    // How long each process waits for what runs when it is told to stop.
    std::optional<absl::Duration> drain_timeout;

    // NAME=DIR, calibrations of length policies; for each draft.
    std::vector<std::string> policy_files;

    MoreArgs more_args;
    std::string bin_dir;  // of the programs; empty: beside this executable
    std::string log_dir;  // a NAME.log for each process; empty: inherited
    absl::Duration ready_timeout = absl::Minutes(5);
    // Without a drain_timeout, how long Drain waits for a process.
    absl::Duration drain_grace = absl::Seconds(10);
    Supervisor::Options supervisor;
    std::function<void(const std::string& line)> progress;
    std::function<bool()> interrupted;  // ends the waiting early

    // --target-model to --policy-file: what says which processes run on what.
    void Register(FlagSet* flags);
    // INVALID_ARGUMENT: a missing model; a count, a port or a duration out of
    // range; a bad list of cores.
    absl::Status Validate() const;
  };

  // Starts everything and waits until all workers are ready; they are then
  // supervised. Errors: Validate's; those of rpc::LoadClientTls and
  // rpc::ReadTokens; NOT_FOUND (no program); ABORTED (a process
  // ended while starting, with its last line of log where there is a log file);
  // DEADLINE_EXCEEDED; CANCELLED (interrupted).
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(Options options);

  // Drains.
  ~Cluster();

  // host:port of the coordinator for clients, for workers and for operators.
  const std::string& address() const { return ports_.clients; }
  const std::string& registry_address() const { return ports_.registry; }
  const std::string& admin_address() const { return ports_.admin; }
  // host:port of the coordinator's /metrics; empty where it serves none.
  const std::string& metrics_address() const { return ports_.metrics; }
  // host:port of the gateway's HTTP; empty where there is no gateway.
  const std::string& http_address() const { return ports_.http; }
  // How clients of this cluster call it, and how operators do.
  const ClientSecurity& security() const { return security_; }
  const ClientSecurity& operator_security() const { return operator_security_; }

  // One line a worker: name, cores, model, where it serves /metrics if it does.
  std::vector<std::string> WorkerLines() const;

  // Stops the gateway, then the workers, then the coordinator. Idempotent.
  void Drain();

  Supervisor& supervisor() { return supervisor_; }

 private:
  struct Worker {
    std::string name;  // target-0, draft-1, ...
    std::string role;  // target or draft
    std::string model;
    std::string cpus;
    std::string metrics;  // host:port once it is known; empty: none
  };
  // host:port of each port of the coordinator; metrics may be empty: none.
  struct Ports {
    std::string clients;
    std::string registry;
    std::string admin;
    std::string metrics;
    std::string http;
  };

  explicit Cluster(Options options);
  absl::Status Launch();
  absl::Status StartCoordinator(absl::Time deadline);
  absl::Status WaitForWorkers(absl::Time deadline);
  absl::Status FindWorkerMetrics(absl::Time deadline);
  absl::Status StartGateway(absl::Time deadline);
  // Why waiting for `awaited` makes no sense any more, if so.
  absl::Status CheckStarting(absl::Time deadline, absl::string_view awaited);
  std::vector<std::string> CoordinatorArgv(const Ports& ports) const;
  std::vector<std::string> WorkerArgv(const Worker& worker) const;
  std::vector<std::string> GatewayArgv(const std::string& listen) const;
  // Where a process writes the address of `port`, "" for the clients'.
  std::string AddressFile(const std::string& port) const;
  // The address it wrote there; empty while there is none.
  std::string ReadAddress(const std::string& port) const;
  // Whether the coordinator has written all of its addresses.
  bool ReadPorts();
  std::string LogFile(const std::string& name) const;

  const Options options_;
  const TemporaryFolder run_dir_;  // the processes' address files
  ClientSecurity security_;
  ClientSecurity operator_security_;
  Ports ports_;
  std::vector<Worker> workers_;
  Supervisor supervisor_;
};

}  // namespace nacre::tools

#endif  // TOOLS_CLUSTER_CLUSTER_H_
