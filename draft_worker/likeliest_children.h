// The likeliest tokens of a row of logits, for trees of the shapes that rank by
// the draft's probability (speculation/tree_spec.h). They are those of its
// softmax at temperature 1, whatever the request samples with. No token of an
// answer depends on them.
//
// Thread-compatible.

#ifndef DRAFT_WORKER_LIKELIEST_CHILDREN_H_
#define DRAFT_WORKER_LIKELIEST_CHILDREN_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "speculation/draft_tree.h"
#include "speculation/tree_spec.h"

namespace nacre::draft_worker {

class LikeliestChildren {
 public:
  // Over logits [1 or more]: the first kMaxShapeWidth by probability, of equal
  // ones the lower id. NaN counts as -inf, and is no child but where there is
  // nothing else: then id 0 is the only one.
  void Find(absl::Span<const float> logits);
  // Of the last Find, and valid until the next.
  speculation::DraftTree::Children children() const {
    return {{token_ids_.data(), count_},
            {log2s_.data(), count_},
            {log2s_.data(), count_}};
  }

 private:
  size_t count_ = 0;
  std::array<int32_t, speculation::kMaxShapeWidth> token_ids_;
  std::array<float, speculation::kMaxShapeWidth> log2s_;
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_LIKELIEST_CHILDREN_H_
