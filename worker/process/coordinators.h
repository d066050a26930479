// All coordinators of a worker: one Registration for each address that
// --coordinator names, and what each of them may promise of the KV cache.
//
// With a single address that is all of it, told by Hello, and no grant is made:
// coordinators then take the capacity as theirs.
//
// Owns the registrations' threads and, for "dns:" names, one that asks for
// their addresses again. An address that is gone from there is left as soon as
// its coordinator does not know this worker any more. Thread-safe.

#ifndef WORKER_PROCESS_COORDINATORS_H_
#define WORKER_PROCESS_COORDINATORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/periodic_thread.h"
#include "wire/kv_report.h"
#include "worker/process/coordinator_list.h"
#include "worker/process/kv_grants.h"
#include "worker/process/registration.h"

namespace nacre::worker {

class Coordinators {
 public:
  struct Options {
    std::vector<CoordinatorName> names;
    // Of each registration, but for `coordinator`, `hello.grants_kv` and
    // `on_refused`.
    Registration::Options registration;
    // Every coordinator has refused this worker: the last one's reason.
    std::function<void(const absl::Status&)> on_refused;
    std::function<absl::StatusOr<std::vector<std::string>>(
        const std::string& host, const std::string& port)>
        resolve = ResolveHost;
    absl::Duration resolve_period = absl::Seconds(5);
  };

  explicit Coordinators(Options options);
  // Leaves them all.
  ~Coordinators();

  // To all of them, at once.
  void SendHeartbeat() ABSL_LOCKS_EXCLUDED(mu_);
  // Whether each has answered to a heartbeat that said `draining`
  // (Registration::IsDrainKnown).
  bool IsDrainKnown() const ABSL_LOCKS_EXCLUDED(mu_);
  // What one says of its share of the KV.
  void OnReport(uint64_t coordinator, const wire::KvReport& report)
      ABSL_LOCKS_EXCLUDED(mu_);

  struct State {
    std::string address;
    bool registered = false;
    int64_t kv_held_tokens = 0;  // what it may have promised at most
  };
  std::vector<State> states() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::vector<std::string> Resolve();
  // Takes up the new ones among `addresses` and leaves those that are gone.
  void Follow(const std::vector<std::string>& addresses)
      ABSL_LOCKS_EXCLUDED(mu_);
  std::unique_ptr<Registration> Register(const std::string& address);
  bool OnRefused(const std::string& address, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Grant(const std::string& address, uint64_t coordinator,
             v1::Heartbeat* heartbeat) ABSL_LOCKS_EXCLUDED(mu_);
  void OnLost(uint64_t coordinator) ABSL_LOCKS_EXCLUDED(mu_);
  void TellUrgent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const bool grants_kv_;
  std::map<std::string, std::vector<std::string>> resolved_;  // Resolve's own
  mutable absl::Mutex mu_;
  KvGrants grants_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::unique_ptr<Registration>> registrations_
      ABSL_GUARDED_BY(mu_);
  std::set<std::string> refused_by_ ABSL_GUARDED_BY(mu_);  // addresses
  bool ends_ ABSL_GUARDED_BY(mu_) = false;                 // they are all left
  PeriodicThread resolver_;
};

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_COORDINATORS_H_
