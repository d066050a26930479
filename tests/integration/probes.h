// Probes a coordinator all the time, as Kubernetes does (deploy/): /liveness
// over HTTP, grpc.health.v1 on the port for clients.
//
// Thread-safe. Owns one thread for each kind of probe.

#ifndef TESTS_INTEGRATION_PROBES_H_
#define TESTS_INTEGRATION_PROBES_H_

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/testing/health_check.h"
#include "tests/testing/loopback.h"

namespace nacre::integration {

class Probes {
 public:
  // What became of the probes of one kind.
  struct Outcome {
    std::string kind;
    int count = 0;
    int failed = 0;           // no good answer within the patience
    int failed_in_a_row = 0;  // most
    absl::Duration longest;   // of a good answer

    std::string ToString() const {
      return absl::StrCat(kind, ": ", count, " probes, ", failed, " failed (",
                          failed_in_a_row, " in a row), longest ",
                          absl::FormatDuration(longest));
    }
  };

  // Each probe waits for its answer up to `patience`, the next one comes
  // `period` later.
  Probes(const std::string& metrics_address, const std::string& clients_address,
         absl::Duration patience, absl::Duration period)
      : patience_(patience), period_(period) {
    Start("/liveness", [this, metrics_address] {
      nacre::testing::LoopbackConnection connection(metrics_address, patience_);
      connection.Send("GET /liveness HTTP/1.0\r\n\r\n");
      return absl::StrContains(connection.ReadAll(), " 200 OK");
    });
    Start("gRPC health", [this, clients_address] {
      const auto health = nacre::testing::CheckHealth(
          clients_address, "liveness", absl::ToChronoMilliseconds(patience_));
      return health.ok() && *health == nacre::testing::kServing;
    });
  }
  ~Probes() { Stop(); }

  // Ends the probing; what it saw.
  std::vector<Outcome> Stop() {
    if (!stop_.HasBeenNotified()) stop_.Notify();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    absl::MutexLock lock(&mu_);
    return outcomes_;
  }

 private:
  void Start(const std::string& kind, std::function<bool()> probe) {
    size_t index = 0;
    {
      absl::MutexLock lock(&mu_);
      index = outcomes_.size();
      outcomes_.emplace_back().kind = kind;
    }
    threads_.emplace_back([this, index, probe = std::move(probe)] {
      int in_a_row = 0;
      do {
        const absl::Time start = absl::Now();
        const bool is_good = probe();
        const absl::Duration took = absl::Now() - start;
        absl::MutexLock lock(&mu_);
        Outcome& outcome = outcomes_[index];
        ++outcome.count;
        in_a_row = is_good ? 0 : in_a_row + 1;
        if (is_good) outcome.longest = std::max(outcome.longest, took);
        if (!is_good) ++outcome.failed;
        outcome.failed_in_a_row = std::max(outcome.failed_in_a_row, in_a_row);
      } while (!stop_.WaitForNotificationWithTimeout(period_));
    });
  }

  const absl::Duration patience_;
  const absl::Duration period_;
  absl::Notification stop_;
  absl::Mutex mu_;
  std::vector<Outcome> outcomes_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_PROBES_H_
