// One cluster of real workers and its client, for the stages of a calibration.

#ifndef TOOLS_CALIBRATE_WORKERS_H_
#define TOOLS_CALIBRATE_WORKERS_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "tools/calibrate/measure.h"
#include "tools/cluster/cluster.h"
#include "tools/cluster/temporary_folder.h"
#include "tools/generate/generation_client.h"
#include "tools/interrupt.h"
#include "tools/terminal.h"
#include "tools/throttled_progress.h"

namespace nacre::tools {

class Workers {
 public:
  // The terminal outlives them. Errors: StartCommandCluster's.
  static absl::StatusOr<std::unique_ptr<Workers>> Start(
      Cluster::Options options, const Terminal& terminal);

  // The result of work(client, progress). Ctrl-C cancels its requests.
  template <typename Work>
  auto Do(const Work& work) {
    ThrottledProgress throttled(terminal_);
    const ProgressLine progress = [&throttled](const std::string& line) {
      throttled(line);
    };
    InterruptWatcher watcher([this] { client_->CancelAll(); });
    auto result = work(client_.get(), progress);
    terminal_.EndProgress();
    return result;
  }

  // Until all processes have ended.
  void Stop() { cluster_->Drain(); }

 private:
  explicit Workers(const Terminal& terminal) : terminal_(terminal) {}

  const Terminal& terminal_;
  const TemporaryFolder logs_;
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<GenerationClient> client_;
};

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_WORKERS_H_
