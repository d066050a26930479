// What drafts of the world read of their target: a row for each position, which
// is a hash of the text up to and including it. Keys and values hold more bits
// of it than features, which lose some on their way (bf16).
//
// Thread-compatible.

#ifndef TESTS_SIMULATION_PROTOCOL_SIMULATED_ROWS_H_
#define TESTS_SIMULATION_PROTOCOL_SIMULATED_ROWS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/feature_source.h"
#include "model/target_sequence.h"

namespace nacre::protocol {

// How a draft reads its target.
struct RowReading {
  model::TargetRowShape shape;
  std::string draft_fingerprint = {};  // of features
  int max_lag = model::RowReader::kAnyLag;
};

inline constexpr model::TargetRowShape kKeysValuesShape = {1, 1, 1};
inline constexpr model::TargetRowShape kFeaturesShape = {.num_features = 3};

// A row that was fed.
struct FedRow {
  uint64_t hash = 0;  // of the text up to it
  int position = 0;
  int32_t token_id = -1;
};

// What stands in a row of that shape, of features for that draft.
absl::InlinedVector<float, 3> RowValues(const model::TargetRowShape& shape,
                                        absl::string_view draft_fingerprint,
                                        const FedRow& row);

// What a draft sees of it.
class SimulatedTargetSequence final : public model::TargetSequence {
 public:
  SimulatedTargetSequence(const RowReading& reading, int max_length)
      : reading_(reading), max_length_(max_length) {}

  const RowReading& reading() const { return reading_; }
  // Before it they are lost.
  int first() const { return first_; }
  int length() const override {
    return first_ +
           static_cast<int>(values_.size()) / reading_.shape.row_size();
  }
  bool empty() const override { return values_.empty(); }
  void Append(absl::Span<const float> rows) override;
  bool SkipTo(int position) override;

  // Whether the row of that position, which is there, is that one.
  bool Is(const FedRow& row) const;

 private:
  absl::Span<const float> At(int position) const;

  const RowReading reading_;
  const int max_length_;
  int first_ = 0;
  std::vector<float> values_;
};

// Features of the rows of a model's last forward.
class SimulatedFeatures final : public model::FeatureSource {
 public:
  // `fed` outlives it.
  SimulatedFeatures(std::string draft_fingerprint,
                    const std::vector<FedRow>* fed)
      : draft_fingerprint_(std::move(draft_fingerprint)), fed_(fed) {}

  int size() const override { return kFeaturesShape.num_features; }
  const std::string& draft_fingerprint() const override {
    return draft_fingerprint_;
  }
  void Project(int row, int count, std::vector<float>* out) override;

 private:
  const std::string draft_fingerprint_;
  const std::vector<FedRow>* const fed_;
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_SIMULATED_ROWS_H_
