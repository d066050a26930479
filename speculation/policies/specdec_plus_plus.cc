#include "speculation/policies/specdec_plus_plus.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "speculation/policies/mat_vec.h"

namespace nacre::speculation {
namespace {

class SpecDecPlusPlusPolicy final : public LengthPolicy {
 public:
  SpecDecPlusPlusPolicy(const AcceptanceHead* head,
                        const SpecDecPlusPlusOptions& options)
      : head_(*head), options_(options) {}

  RowNeeds needs() const override { return {.draft_hidden = true}; }

  LengthDecision Decide(const DraftRow& row) override {
    if (row.unverified == 0) {
      judged_.clear();
    } else {
      judged_.push_back(head_.Accepted(row.draft_hidden));
    }
    const double survive = std::accumulate(judged_.begin(), judged_.end(), 1.0,
                                           std::multiplies<double>());
    return row.chunk_length + 1 >= options_.min_length &&
                   1.0 - survive > options_.threshold
               ? LengthDecision::kStop
               : LengthDecision::kContinue;
  }

  void OnVerified(const VerifiedTokens& verified) override {
    if (verified.rejected || verified.overtaken) {
      judged_.clear();
      return;
    }
    judged_.erase(judged_.begin(),
                  judged_.begin() + std::min<ptrdiff_t>(verified.accepted,
                                                        std::ssize(judged_)));
  }

 private:
  const AcceptanceHead& head_;
  const SpecDecPlusPlusOptions options_;
  // Of the unverified tokens but the newest, in order.
  std::deque<double> judged_;
};

}  // namespace

double AcceptanceHead::Accepted(absl::Span<const float> hidden) const {
  std::vector<float> x(hidden.begin(), hidden.end());
  std::vector<float> next(size());
  for (int layer = 0; layer < num_layers; ++layer) {
    for (size_t i = 0; i < size(); ++i) {
      const float z = Dot(MatrixRow(block, i, size()), x) + block_bias[i];
      next[i] = x[i] + z / (1.0f + std::exp(-z));
    }
    std::swap(x, next);
  }
  const float rejected = Dot(MatrixRow(output, 0, size()), x) + output_bias[0];
  const float accepted = Dot(MatrixRow(output, 1, size()), x) + output_bias[1];
  return 1.0 / (1.0 + std::exp(static_cast<double>(rejected) - accepted));
}

absl::Status Validate(const AcceptanceHead& head) {
  const size_t size = head.size();
  if (head.num_layers < 1 || size == 0 || head.block.size() != size * size ||
      head.output.size() != 2 * size || head.output_bias.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "specdec++: ", head.num_layers, " layers, block_bias has ", size,
        " values, block ", head.block.size(), ", output ", head.output.size(),
        ", output_bias ", head.output_bias.size(),
        "; for a hidden size D >= 1 they have D, D * D, 2 * D and 2, and there "
        "is a layer"));
  }
  if (!AllFinite(head.block) || !AllFinite(head.block_bias) ||
      !AllFinite(head.output) || !AllFinite(head.output_bias)) {
    return absl::InvalidArgumentError(
        "specdec++: a weight is not a finite number");
  }
  return absl::OkStatus();
}

std::unique_ptr<LengthPolicy> MakeSpecDecPlusPlusPolicy(
    const AcceptanceHead* head, const SpecDecPlusPlusOptions& options) {
  return std::make_unique<SpecDecPlusPlusPolicy>(head, options);
}

}  // namespace nacre::speculation
