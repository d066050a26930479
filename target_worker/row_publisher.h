// Lets drafts read the target's keys and values (GliDe): of each session whose
// channel has readers that want some, those of committed positions, out of the
// model's cache.
//
// The engine's thread.

#ifndef TARGET_WORKER_ROW_PUBLISHER_H_
#define TARGET_WORKER_ROW_PUBLISHER_H_

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/language_model.h"
#include "model/target_rows.h"
#include "worker/engine/session_table.h"
#include "worker/tensors/tensor_publisher.h"

namespace nacre::target_worker {

struct EngineSession;  // engine_session.h

class RowPublisher {
 public:
  // `model`, `rows` and `tensors` outlive the publisher. If `tensors` is null,
  // it publishes nothing. If `rows` is null, it reads the model's own cache.
  // Any thread may call `wake`, which lets the engine plan again.
  RowPublisher(model::LanguageModel* model, model::RowSource* rows,
              worker::TensorPublisher* tensors, std::function<void()> wake);
  ~RowPublisher();
  RowPublisher(const RowPublisher&) = delete;
  RowPublisher& operator=(const RowPublisher&) = delete;

  // Between steps, of all sessions: those that have more rows than at the last
  // call, of a step or of the prefix cache, and all once a reader has come. It
  // is not to wait for a step, which may wait for what it drafts.
  void Publish(worker::TypedSessions<EngineSession> sessions);

 private:
  // To one of those that want some; false: none does.
  bool PublishRows(const EngineSession& session, int there);
  // Whether the model has what a reader wants.
  absl::Status Check(const worker::TensorPublisher::RowsWanted& wanted) const;

  const std::string fingerprint_;
  model::KeptRows kept_;
  model::RowSource* const source_;
  worker::TensorPublisher* const tensors_;
  std::atomic<bool> is_wanted_{false};
  std::vector<float> rows_;  // of the call being made
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_ROW_PUBLISHER_H_
