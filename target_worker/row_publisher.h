// Lets drafts read rows of the target: of each session whose channel has
// readers that want some, those of committed positions. Keys and values (GliDe)
// come out of the model's cache, features (EAGLE) from the shelf.
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
#include "target_worker/feature_shelf.h"
#include "worker/engine/session_table.h"
#include "worker/tensors/tensor_publisher.h"

namespace nacre::target_worker {

struct EngineSession;  // engine_session.h

class RowPublisher {
 public:
  // All outlive it.
  struct Parts {
    model::LanguageModel* model = nullptr;
    model::RowSource* keys_values = nullptr;  // null: the model's own cache
    const FeatureShelf* features = nullptr;
    worker::TensorPublisher* tensors = nullptr;  // null: it publishes nothing
  };
  // Any thread may call `wake`, which lets the engine plan again.
  RowPublisher(const Parts& parts, std::function<void()> wake);
  ~RowPublisher();
  RowPublisher(const RowPublisher&) = delete;
  RowPublisher& operator=(const RowPublisher&) = delete;

  // Between steps, of all sessions: those that have more rows than at the last
  // call, of a step or of the prefix cache, and all once a reader has come. It
  // is not to wait for a step, which may wait for what it drafts.
  void Publish(worker::TypedSessions<EngineSession> sessions);

 private:
  using RowsWanted = worker::TensorPublisher::RowsWanted;

  // To one of those that want some, of `there` positions; false: none does, or
  // can be served.
  bool PublishRows(const EngineSession& session, int there);
  // Whether there is what a reader wants.
  absl::Status Check(const RowsWanted& wanted) const;
  // Those of so many positions, which are there.
  void Send(const EngineSession& session, const RowsWanted& wanted, int count);

  const Parts parts_;
  const std::string fingerprint_;
  model::KeptRows kept_;
  model::RowSource* const source_;
  worker::TensorPublisher* const tensors_;
  std::atomic<bool> is_wanted_{false};
  std::vector<float> rows_;  // of the call being made
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_ROW_PUBLISHER_H_
