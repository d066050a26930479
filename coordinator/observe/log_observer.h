// The coordinator's log of requests: one line when an answer is complete or has
// failed, more of them at level debug. Every line carries request_id; none
// holds a prompt, a token or what a client sent beside its request_id.

#ifndef COORDINATOR_OBSERVE_LOG_OBSERVER_H_
#define COORDINATOR_OBSERVE_LOG_OBSERVER_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "common/logging.h"
#include "coordinator/dispatch/observer.h"

namespace nacre::coordinator {

class LogObserver final : public Observer {
 public:
  using Log = std::function<void(spdlog::level::level_enum level,
                                 const std::string& message,
                                 const nlohmann::ordered_json& fields)>;

  // `log` must not block: the requests of all clients wait for it.
  explicit LogObserver(Log log = LogEvent) : log_(std::move(log)) {}

  void OnQueued(const RequestSpec& request, int position) override;
  void OnStarted(uint64_t session_id, const RequestSpec& request,
                 const Placement& placement, int64_t queue_ns) override;
  void OnMoved(uint64_t session_id, const Placement& placement) override;
  void OnFinished(uint64_t session_id, const RequestSpec& request,
                  const absl::Status& status,
                  const Completion* completion) override;
  void OnAnswered(absl::string_view request_id, const absl::Status& status,
                  absl::optional<Finish> finish) override;

 private:
  struct Session {
    std::string request_id;
    absl::optional<int> choice;  // of several
    Placement placement;
    int64_t queue_ns = 0;
  };

  const Log log_;
  // Used by one call at a time.
  absl::flat_hash_map<uint64_t, Session> sessions_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_OBSERVE_LOG_OBSERVER_H_
