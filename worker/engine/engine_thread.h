// The engine on its own thread, from warm-up to Stop.

#ifndef WORKER_ENGINE_ENGINE_THREAD_H_
#define WORKER_ENGINE_ENGINE_THREAD_H_

#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/language_model.h"
#include "worker/engine/engine.h"
#include "worker/engine/warm_up.h"

namespace nacre::worker {

class EngineThread {
 public:
  using WarmUpResult = absl::StatusOr<std::vector<StepTime>>;

  struct Options {
    model::LanguageModel* model = nullptr;  // outlives this
    Engine* engine = nullptr;               // outlives this
    RowUse row_use = RowUse::kDrawn;        // of steps to measure
    // The engine has ended with an error. Called on its thread.
    std::function<void(const absl::Status&)> on_failure;
    // Ends what a running step only waits for. Called with Stop; may be null.
    std::function<void()> stop_waits = nullptr;
    // A running step may take so long after Stop.
    absl::Duration stop_timeout = absl::Seconds(8);
  };

  explicit EngineThread(Options options);
  // Stops the engine and waits for its thread. One that hangs cannot be waited
  // for and uses what is about to be destroyed: the process exits, code 1.
  ~EngineThread();

  // Call it once.
  WarmUpResult WaitForWarmUp() { return warm_up_.get_future().get(); }

 private:
  void Run();

  const Options options_;
  std::promise<WarmUpResult> warm_up_;
  std::promise<void> finished_;
  std::thread thread_;
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_ENGINE_THREAD_H_
