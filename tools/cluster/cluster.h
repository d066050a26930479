// Coordinators and their workers as child processes on this machine: what
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
#include "worker/process/options.h"

namespace nacre::tools {

// Owns the processes. Not thread-safe; the thread that calls Start must outlive
// the cluster.
class Cluster {
 public:
  // Groups of flags that workers understand, under the names that they have
  // here. They are read to refuse bad values before anything starts. What was
  // given goes on as it is (HandOn): a process keeps its own defaults.
  struct WorkerFlags {
    worker::ComputeFlags compute;
    worker::ComputeFlags draft_compute;  // --draft-: of the drafts alone
    worker::PaceOfSteps target_steps;    // --target-
    worker::PaceOfSteps draft_steps;     // --draft-
    worker::TensorFlags tensors;
    worker::PrefillFlags prefill;          // of the targets
    worker::OwnDraftFlags own_drafts;      // likewise
    worker::PolicyFlags policies;          // of the drafts
    worker::VocabularyOptions vocabulary;  // likewise, but for the tokenizer
  };

  // More flags for processes, of which the last of a name counts.
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
    // Of the first coordinator, for clients; 0: a free one. Others have free
    // ones.
    int port = 0;
    int coordinators = 1;
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
    // The first coordinator serves /metrics there on the loopback address (0: a
    // free port), the others and each worker on a free port. Unset: none does.
    std::optional<int> metrics_port;
    // A gateway serves HTTP there on the loopback address (0: a free port).
    // Unset: there is none.
    std::optional<int> http_port;
    // How long each process waits for what runs when it is told to stop.
    std::optional<absl::Duration> drain_timeout;

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
    // Workers read all of every prompt, unless --prefix-cache says otherwise.
    // Before Register.
    void ReadPromptsWhole();
    // After `flags` have read a command line: adds what was given to
    // `more_args`. Of the groups "coordinator", "gateway", "worker" (each of
    // both roles), "target" and "draft".
    void HandOn(const FlagSet& flags);
    // INVALID_ARGUMENT: a missing model; a count, a port or a duration out of
    // range; a bad list of cores; what a worker that is started would refuse of
    // `more_args`, in its words.
    absl::Status Validate() const;
  };

  // Starts everything and waits until all workers are ready; they are then
  // supervised. Errors: Validate's; those of rpc::LoadClientTls and
  // rpc::ReadTokens; NOT_FOUND (no program); ABORTED (a process
  // ended while starting, with its last line of stderr or of its log file);
  // DEADLINE_EXCEEDED; CANCELLED (interrupted).
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(Options options);

  // Drains.
  ~Cluster();

  // One coordinator. Its process is "coordinator" or, of several,
  // "coordinator-0" and so on. The others are host:port for clients, for
  // workers, for operators and of its /metrics: empty where it serves none.
  struct Coordinator {
    std::string name;
    std::string clients;
    std::string registry;
    std::string admin;
    std::string metrics;
  };
  const std::vector<Coordinator>& coordinators() const { return coordinators_; }
  // Of the first one.
  const std::string& address() const { return coordinators_[0].clients; }
  const std::string& registry_address() const {
    return coordinators_[0].registry;
  }
  const std::string& admin_address() const { return coordinators_[0].admin; }
  const std::string& metrics_address() const {
    return coordinators_[0].metrics;
  }
  // host:port of the gateway's HTTP; empty where there is no gateway.
  const std::string& http_address() const { return http_address_; }
  // How clients of this cluster call it, and how operators do.
  const ClientSecurity& security() const { return security_; }
  const ClientSecurity& operator_security() const { return operator_security_; }

  // One line a worker: name, cores, model, where it serves /metrics if it does.
  std::vector<std::string> WorkerLines() const;

  // Stops the gateway, then the workers, then the coordinators. Idempotent.
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
  explicit Cluster(Options options);
  absl::Status Launch();
  absl::Status StartCoordinators(absl::Time deadline);
  absl::Status WaitForWorkers(absl::Time deadline);
  absl::Status FindWorkerMetrics(absl::Time deadline);
  absl::Status StartGateway(absl::Time deadline);
  // Why waiting for `awaited` makes no sense any more, if so.
  absl::Status CheckStarting(absl::Time deadline, absl::string_view awaited);
  std::vector<std::string> CoordinatorArgv(
      const Coordinator& coordinator) const;
  std::vector<std::string> WorkerArgv(const Worker& worker) const;
  std::vector<std::string> GatewayArgv(const std::string& listen) const;
  // Where a process writes the address of `port`, of a coordinator with its
  // name before.
  std::string AddressFile(const std::string& port) const;
  // The address it wrote there; empty while there is none.
  std::string ReadAddress(const std::string& port) const;
  // The addresses that the coordinator of that name has written.
  Coordinator ReadPorts(const std::string& name) const;
  // One address of each coordinator.
  std::string Joined(std::string Coordinator::*address) const;
  std::string LogFile(const std::string& name) const;

  const Options options_;
  const TemporaryFolder run_dir_;  // the processes' address files
  ClientSecurity security_;
  ClientSecurity operator_security_;
  std::vector<Coordinator> coordinators_;
  std::string http_address_;
  std::vector<Worker> workers_;
  Supervisor supervisor_;
};

}  // namespace nacre::tools

#endif  // TOOLS_CLUSTER_CLUSTER_H_
