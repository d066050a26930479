// What a table reads of a target: rows that are kept as they came, for a test
// to look at.

#ifndef TESTS_TESTING_TARGET_TABLE_H_
#define TESTS_TESTING_TARGET_TABLE_H_

#include <vector>

#include "absl/types/span.h"
#include "model/target_sequence.h"

namespace nacre::testing {

// The rows of a target as they came. Of features the first ones may be lost.
class TargetTable final : public model::TargetSequence {
 public:
  explicit TargetTable(int row_size, bool may_skip = false)
      : row_size_(row_size), may_skip_(may_skip) {}
  int length() const override {
    return first + static_cast<int>(rows.size()) / row_size_;
  }
  bool empty() const override { return rows.empty(); }
  void Append(absl::Span<const float> more) override {
    rows.insert(rows.end(), more.begin(), more.end());
  }
  bool SkipTo(int position) override {
    if (!may_skip_ || !rows.empty()) return position == length();
    first = position;
    return true;
  }
  int first = 0;
  std::vector<float> rows;

 private:
  const int row_size_;
  const bool may_skip_;
};

}  // namespace nacre::testing

#endif  // TESTS_TESTING_TARGET_TABLE_H_
