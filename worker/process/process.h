// The life of a worker process, the same for both roles: flags, model, server,
// warm-up, registration, serving, drain. main.cc says what differs.

#ifndef WORKER_PROCESS_PROCESS_H_
#define WORKER_PROCESS_PROCESS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/security.h"
#include "model/language_model.h"
#include "wire/hello.h"
#include "worker/engine/engine.h"
#include "worker/process/options.h"
#include "worker/process/service.h"
#include "worker/tensors/transports.h"

namespace nacre::worker {

// Wired to each other; neither needs the other to be destroyed.
struct WorkerParts {
  // Destroyed last: whatever the engine borrows.
  std::shared_ptr<void> owned;
  ServedPublisher tensors;  // for other workers; served beside `service`
  // Of a draft: what reads those of targets. One of `owned`.
  TensorReader* tensor_reader = nullptr;
  std::function<TensorUse()> tensor_use;  // what `engine` made of them
  std::unique_ptr<SessionService> service;
  std::unique_ptr<Engine> engine;
  // Of a draft: what it has calibrations for (Hello.policy_files).
  std::vector<std::pair<std::string, std::string>> policy_files;
  bool drafts_chains = false;  // likewise (Hello.drafts_chains)
};

struct WorkerProgram {
  std::string name;     // "nacre-target-worker"
  std::string summary;  // for --help
  wire::WorkerRole role = wire::WorkerRole::kTarget;
  // What flags this role refuses, before anything is loaded.
  std::function<absl::Status(const WorkerOptions&)> check;
  // `model` outlives the parts; `peers`: how to dial other workers. An error
  // ends the process.
  std::function<absl::StatusOr<WorkerParts>(model::LanguageModel* model,
                                            const WorkerOptions& options,
                                            const rpc::ChannelSecurity& peers)>
      build;
};

// Runs the process to its end and returns its exit code: 0 after a drain, 1
// after a failure, which is one line on stderr. Call it first in main: it
// blocks the termination signals before any thread exists.
int RunWorker(int argc, char** argv, const WorkerProgram& program);

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_PROCESS_H_
