#include "tools/cluster/command_cluster.h"

#include <atomic>
#include <utility>

#include "tools/interrupt.h"

namespace nacre::tools {

absl::StatusOr<std::unique_ptr<Cluster>> StartCommandCluster(
    Cluster::Options options, const std::string& log_dir,
    const Terminal& terminal) {
  options.log_dir = log_dir;
  options.progress = [&terminal](const std::string& line) {
    terminal.Progress(line);
  };
  options.supervisor.report = [&terminal](const std::string& line) {
    terminal.err << line << std::endl;
  };
  // The cluster keeps a copy of the question.
  const auto interrupted = std::make_shared<std::atomic<bool>>(false);
  options.interrupted = [interrupted] { return interrupted->load(); };
  absl::StatusOr<std::unique_ptr<Cluster>> cluster;
  {
    InterruptWatcher watcher([&interrupted] { *interrupted = true; });
    cluster = Cluster::Start(std::move(options));
  }
  terminal.EndProgress();
  return cluster;
}

}  // namespace nacre::tools
