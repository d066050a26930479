// A restricted reader of Python pickles: a pickle is a program, of which only
// the steps are followed that build data. What it would call is noted as a call
// and never run; names that no file of tensors needs are refused.
//
// Thread-safe: immutable after Parse.

#ifndef MODEL_PICKLE_PICKLE_H_
#define MODEL_PICKLE_PICKLE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace nacre::model {

struct PickleValue {
  enum class Kind {
    kOther,     // None, a number with a fraction: no table of tensors needs it
    kNumber,    // whole, or a truth
    kText,      // of its bytes
    kSequence,  // a tuple or a list: items
    kDict,      // items: keys and values in turn
    kGlobal,    // text: "MODULE NAME"
    kCall,      // items: what is called, its arguments
    kPersistent,  // items: the name of something outside the pickle
  };
  Kind kind = Kind::kOther;
  int64_t number = 0;
  absl::string_view text;
  std::vector<const PickleValue*> items;
};

class Pickle {
 public:
  // `bytes` outlives the result, and so does what `globals`, the names that may
  // stand in it ("MODULE NAME"), points to. UNIMPLEMENTED: another name, or a
  // step that builds no data. INVALID_ARGUMENT: malformed.
  static absl::StatusOr<std::unique_ptr<Pickle>> Parse(
      absl::string_view bytes, absl::Span<const absl::string_view> globals);

  // May hold itself: walk it no deeper than known.
  const PickleValue& root() const { return *root_; }

 private:
  friend class PickleReader;
  Pickle() = default;

  std::deque<PickleValue> values_;
  const PickleValue* root_ = nullptr;
};

}  // namespace nacre::model

#endif  // MODEL_PICKLE_PICKLE_H_
