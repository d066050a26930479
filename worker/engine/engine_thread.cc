#include "worker/engine/engine_thread.h"

#include <spdlog/spdlog.h>

#include <cstdlib>
#include <utility>

#include "common/logging.h"
#include "worker/engine/clock.h"

namespace nacre::worker {

EngineThread::EngineThread(Options options)
    : options_(std::move(options)), thread_([this] { Run(); }) {}

EngineThread::~EngineThread() {
  options_.engine->Stop();
  if (options_.stop_waits) options_.stop_waits();
  if (finished_.get_future().wait_for(absl::ToChronoNanoseconds(
          options_.stop_timeout)) == std::future_status::timeout) {
    spdlog::critical("the engine hangs and does not stop");
    FinishLogging();
    std::_Exit(EXIT_FAILURE);
  }
  thread_.join();
}

void EngineThread::Run() {
  options_.model->BindComputeThread();
  WarmUpResult times = WarmUp(options_.model, MonotonicNowNs, options_.row_use);
  if (times.ok()) {
    options_.engine->LearnStepTimes(*times);
    absl::Status prepared = options_.engine->Prepare();
    if (!prepared.ok()) times = std::move(prepared);
  }
  const bool warm = times.ok();
  warm_up_.set_value(std::move(times));
  if (warm) {
    const absl::Status status = options_.engine->Run();
    if (!status.ok()) options_.on_failure(status);
  }
  finished_.set_value();
}

}  // namespace nacre::worker
