// Reads hidden states that a draft worker has recorded with --record-hidden
// (docs/policies.md, "Recording").
//
// Pure.

#ifndef TOOLS_CALIBRATE_HIDDEN_READER_H_
#define TOOLS_CALIBRATE_HIDDEN_READER_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace nacre::tools {

class HiddenStates {
 public:
  // `name` stands for the source in errors. INVALID_ARGUMENT: another magic,
  // version or size, half a state at the end, a number that is not finite.
  static absl::StatusOr<HiddenStates> Parse(absl::string_view name,
                                            absl::string_view content);

  size_t size() const { return size_; }  // of a state
  size_t count() const { return values_.size() / size_; }
  // State `index` < count().
  absl::Span<const float> at(size_t index) const {
    return absl::MakeConstSpan(values_).subspan(index * size_, size_);
  }

 private:
  HiddenStates(size_t size, std::vector<float> values)
      : size_(size), values_(std::move(values)) {}

  size_t size_;
  std::vector<float> values_;
};

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_HIDDEN_READER_H_
