// A coordinator and its workers as child processes on this machine: what
// `nacre up` and `nacre bench` run.

#ifndef TOOLS_CLUSTER_H_
#define TOOLS_CLUSTER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/security.h"
#include "tools/flag_set.h"
#include "tools/security_flags.h"
#include "tools/supervisor.h"
#include "tools/temporary_folder.h"

namespace nacre::tools {

// Owns the processes. Not thread-safe; the thread that calls Start must outlive
// the cluster.
class Cluster {
 public:
  struct Options {
    std::string target_model;  // checkpoint folders
    std::string draft_model;   // may be empty with drafts = 0
    int port = 0;              // of the coordinator, for clients; 0: a free one
    int targets = 1;
    int drafts = 1;
    // Passed to every worker where set.
    std::string backend;
    std::string weights;
    std::string max_memory;
    std::string prefix_cache;  // "on" or "off"
    std::optional<int> device;
    std::string cpus;  // cores to deal out; empty: all this process may use

    // All processes show this certificate, which must be good for 127.0.0.1 or
    // for tls_server_name. Empty: plaintext.
    rpc::TlsFiles tls;
    std::string tls_server_name;
    // Clients must show one of its tokens; empty: none.
    std::string auth_tokens_file;

    std::vector<std::string> coordinator_args;  // more flags for it
    std::string bin_dir;  // of the programs; empty: beside this executable
    std::string log_dir;  // a NAME.log for each process; empty: inherited
    absl::Duration ready_timeout = absl::Minutes(5);
    absl::Duration drain_grace = absl::Seconds(10);
    Supervisor::Options supervisor;
    std::function<void(const std::string& line)> progress;
    std::function<bool()> interrupted;  // ends the waiting early

    // --target-model to --max-memory, without --port.
    void Register(FlagSet* flags);
    // INVALID_ARGUMENT: a missing model, a count or a port out of range, a bad
    // list of cores.
    absl::Status Validate() const;
  };

  // Starts everything and waits until all workers are ready; they are then
  // supervised. Errors: Validate's; NOT_FOUND (no program); ABORTED (a process
  // ended while starting, with its last line of log where there is a log file);
  // DEADLINE_EXCEEDED; CANCELLED (interrupted).
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(Options options);

  // Drains.
  ~Cluster();

  // host:port of the coordinator for clients, for workers and for operators.
  const std::string& address() const { return address_; }
  const std::string& registry_address() const { return registry_address_; }
  const std::string& admin_address() const { return admin_address_; }
  // How clients and operators of this cluster call it.
  const ClientSecurity& security() const { return security_; }

  // One line a worker: name, cores, model.
  std::vector<std::string> WorkerLines() const;

  // Stops the workers, then the coordinator. Idempotent.
  void Drain();

  Supervisor& supervisor() { return supervisor_; }

 private:
  struct Worker {
    std::string name;  // target-0, draft-1, ...
    std::string role;  // target or draft
    std::string model;
    std::string cpus;
  };

  explicit Cluster(Options options);
  absl::Status Launch();
  absl::Status StartCoordinator(absl::Time deadline);
  absl::Status StartWorker(const Worker& worker);
  absl::Status WaitForWorkers(absl::Time deadline);
  // Why waiting for `awaited` makes no sense any more, if so.
  absl::Status CheckStarting(absl::Time deadline, absl::string_view awaited);
  std::vector<std::string> CoordinatorArgv(
      const std::string& listen, const std::string& registry_listen,
      const std::string& admin_listen) const;
  // Where the coordinator writes the address of `port`, "" for clients.
  std::string AddressFile(const std::string& port) const;
  // The address it wrote there; empty while there is none.
  std::string ReadAddress(const std::string& port) const;
  void AddTlsFlags(std::vector<std::string>* argv) const;
  std::string LogFile(const std::string& name) const;

  const Options options_;
  const TemporaryFolder run_dir_;  // the coordinator's address files
  ClientSecurity security_;
  std::string address_;
  std::string registry_address_;
  std::string admin_address_;
  std::vector<Worker> workers_;
  Supervisor supervisor_;
};

}  // namespace nacre::tools

#endif  // TOOLS_CLUSTER_H_
