// Lets drafts read the target's keys and values (GliDe): of each session whose
// channel has readers that want some, those of committed positions, out of the
// model's cache.
//
// The engine's thread.

#ifndef TARGET_WORKER_KV_PUBLISHER_H_
#define TARGET_WORKER_KV_PUBLISHER_H_

#include <atomic>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "model/language_model.h"
#include "target_worker/step.h"
#include "worker/engine/session_table.h"
#include "worker/tensors/tensor_publisher.h"

namespace nacre::target_worker {

struct EngineSession;  // engine_session.h

class KvPublisher {
 public:
  // All outlive it. Null `tensors`: nobody reads any. `wake`: the engine, of any
  // thread.
  KvPublisher(model::LanguageModel* model, worker::TensorPublisher* tensors,
              std::function<void()> wake);
  ~KvPublisher();
  KvPublisher(const KvPublisher&) = delete;
  KvPublisher& operator=(const KvPublisher&) = delete;

  // After the verdicts of a step, of its sessions.
  void Publish(const Step& step);
  // Between steps, of all sessions: a reader that has just come is not to wait
  // for a step, which may wait for what it drafts.
  void PublishIfWanted(worker::TypedSessions<EngineSession> sessions);

 private:
  void PublishRows(const EngineSession& session);
  // Whether the model has what a reader wants.
  absl::Status Check(const worker::TensorPublisher::RowsWanted& wanted) const;

  model::LanguageModel* const model_;
  worker::TensorPublisher* const tensors_;
  std::atomic<bool> is_wanted_{false};
  std::vector<float> rows_;  // of the call being made
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_KV_PUBLISHER_H_
