// An Observer that writes down every request's life as lines, rounds left out.
// Used by a dispatcher, which calls it one at a time, and between its calls by
// the test.

#ifndef TESTS_COORDINATOR_RECORDING_OBSERVER_H_
#define TESTS_COORDINATOR_RECORDING_OBSERVER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/dispatch/observer.h"

namespace nacre::coordinator {

class RecordingObserver final : public Observer {
 public:
  void OnQueued(const RequestSpec& request, int position) override {
    Add("queued ", request.request_id, " ", position);
  }
  void OnRefused(const RequestSpec& request,
                 const absl::Status& status) override {
    Add("refused ", request.request_id, " ",
        absl::StatusCodeToString(status.code()));
  }
  void OnStarted(uint64_t, const RequestSpec& request, const Placement&,
                 int64_t queue_ns) override {
    Add("started ", request.request_id, " ", queue_ns);
  }
  void OnOpened(uint64_t session_id, int cached_tokens) override {
    Add("opened ", session_id, " ", cached_tokens);
  }
  void OnCached(uint64_t session_id, int tokens) override {
    Add("cached ", session_id, " ", tokens);
  }
  void OnFinished(uint64_t, const RequestSpec& request,
                  const absl::Status& status,
                  const Completion* completion) override {
    Add("finished ", request.request_id, " ",
        absl::StatusCodeToString(status.code()),
        completion == nullptr ? "" : " completed");
  }

  // Since the last time.
  std::vector<std::string> Take() { return std::exchange(lines_, {}); }

 private:
  template <typename... Args>
  void Add(const Args&... args) {
    lines_.push_back(absl::StrCat(args...));
  }

  std::vector<std::string> lines_;
};

}  // namespace nacre::coordinator

#endif  // TESTS_COORDINATOR_RECORDING_OBSERVER_H_
