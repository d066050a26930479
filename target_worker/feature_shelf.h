// Keeps the target's features for drafts that run elsewhere (EAGLE), projected
// for them: of each session whose channel may have readers, a row of bf16 for
// each position, as the steps make them. All sessions together take a given
// number of bytes at most. Beyond that the oldest rows of the longest session
// are dropped: they are lost to a reader that has not had them.
//
// There are none of what a session took over from the prefix cache, nor of
// sessions of the ratio test.
//
// Owned by the engine, used by its thread.

#ifndef TARGET_WORKER_FEATURE_SHELF_H_
#define TARGET_WORKER_FEATURE_SHELF_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "model/feature_source.h"
#include "target_worker/step.h"
#include "target_worker/target_messages.h"
#include "target_worker/text_rows.h"
#include "worker/tensors/tensor_publisher.h"

namespace nacre::target_worker {

struct EngineSession;  // engine_session.h

// What a session keeps.
struct ShelvedFeatures {
  int first = 0;                 // position of the first row
  int end = 0;                   // after the last
  std::vector<uint16_t> values;  // bf16
};

class FeatureShelf {
 public:
  static constexpr int64_t kDefaultBytes = int64_t{64} << 20;

  // Null `source`: it keeps none. The source outlives it.
  FeatureShelf(model::FeatureSource* source, int64_t most_bytes)
      : source_(source), most_bytes_(static_cast<size_t>(most_bytes)) {}

  // Of a session that was opened so.
  void Open(EngineSession& session, const OpenTarget& open);
  // Call it after the verdicts of a step, before the model's next forward.
  void Take(const Step& step);
  void Close(EngineSession& session);

  // Whether it has what a reader wants. UNIMPLEMENTED: it keeps none;
  // FAILED_PRECONDITION: for another draft; INVALID_ARGUMENT: of another size.
  absl::Status Check(const worker::TensorPublisher::RowsWanted& wanted) const;
  // Rows [count, size] of what the session has.
  void Read(const EngineSession& session, int first, int count,
            std::vector<float>* rows) const;

 private:
  size_t row_bytes() const {
    return static_cast<size_t>(source_->size()) * sizeof(uint16_t);
  }
  void Add(int position, const float* row, ShelvedFeatures* shelved);
  void DropBefore(int position, ShelvedFeatures* shelved);
  void MakeRoom();

  model::FeatureSource* const source_;
  const size_t most_bytes_;
  size_t bytes_ = 0;  // of all rows
  std::vector<ShelvedFeatures*> all_;
  // Of the call being made.
  std::vector<TextRow> text_rows_;
  std::vector<float> projected_;
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_FEATURE_SHELF_H_
