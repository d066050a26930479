// A draft of the world's targets that continues what they compute
// (model/feature_drafter.h), of either kind. It goes on with the table of a
// draft, good or bad. A quarter of the tokens it never says: which ones depends
// on the whole text, and on where what it saw of it begins. So a proposal shows
// which rows it came from.
//
// It is strict. Rows are those of one text, one after the other, and it is the
// session's. After it forgot them it goes on behind what it knew. A node stands
// behind the node that it names, in a slot that no other node of its tree has.
//
// Thread-compatible.

#ifndef TESTS_SIMULATION_PROTOCOL_SIMULATED_DRAFTER_H_
#define TESTS_SIMULATION_PROTOCOL_SIMULATED_DRAFTER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/feature_drafter.h"
#include "simulation/random.h"
#include "tests/simulation/protocol/outcome.h"
#include "tests/simulation/protocol/schedule.h"
#include "tests/simulation/protocol/simulated_model.h"

namespace nacre::protocol {

// Of the table, after a text of that hash that ends in these two tokens, of
// which it saw what begins at `first`.
std::array<float, kVocabSize> SaidByDrafter(const LogitTable& table,
                                            const Cell& end, int32_t before,
                                            int first);

class SimulatedDrafter final : public model::FeatureDrafter {
 public:
  struct Options {
    OwnDrafter kind;
    const LogitTable* table = nullptr;
    SimulatedModel* model = nullptr;  // its target
    uint64_t seed = 0;                // of its failures
    // Whose the next sequence is.
    std::function<SessionOnWorker*()> next_session;
    // Called first in every Forward, of so many rows: time passes.
    std::function<absl::Status(int rows)> on_forward;
    std::function<void(const std::string& wrong)> on_wrong;
    Counts* counts = nullptr;
  };
  explicit SimulatedDrafter(Options options);

  absl::Span<const model::FeatureTap> taps() const override { return taps_; }
  int feature_size() const override;
  int max_depth() const override { return options_.kind.max_depth; }
  absl::StatusOr<std::unique_ptr<model::FeatureSequence>> NewSequence(
      int max_length, int num_slots) override;
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const model::FeatureRows> batch) override;

 private:
  class Sequence;
  // The end of a text.
  struct End {
    Cell cell;
    int32_t before = -1;  // the token before that
    int depth = 0;        // of a node
  };

  // What goes wrong by chance.
  absl::Status Fail(absl::Span<const model::FeatureRows> batch);
  void FeedText(const model::FeatureRows& rows, size_t index);
  // What stands before a row of text, by its features, and by the keys and
  // values before its position.
  Cell EndOfFeatures(const model::FeatureRows& rows, size_t index,
                     int* position) const;
  Cell EndOfKv(const model::FeatureRows& rows, int position) const;
  void Begin(const Sequence& sequence, int position) const;
  const End* FeedNode(const model::FeatureRows& rows, size_t index);
  void CountText(const model::FeatureRows& rows, int num_rows) const;
  template <typename... Parts>
  void Wrong(const Sequence& sequence, const Parts&... parts) const;

  const Options options_;
  std::vector<model::FeatureTap> taps_;
  simulation::Random random_;
  int num_calls_ = 0;
  std::vector<float> logits_;
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_SIMULATED_DRAFTER_H_
