#include "tests/simulation/protocol/table_sampler.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace nacre::protocol {
namespace {

model::EndRule EndRuleOf(const coordinator::RequestSpec& request) {
  model::EndRule rule{
      static_cast<int>(request.prompt_ids.size()) + request.min_tokens,
      request.stop_token_ids};
  if (!request.ignore_eos) rule.token_ids.push_back(kEos);
  return rule;
}

}  // namespace

TableSampler::TableSampler(const LogitTable* table,
                           const coordinator::RequestSpec& request)
    : table_(table),
      sampler_(request.sampling, kVocabSize, EndRuleOf(request)),
      history_(static_cast<int>(request.prompt_ids.size())) {}

void TableSampler::Push(int32_t token_id) {
  before_ = std::exchange(last_, token_id);
  history_.Push(token_id);
  weights_.token_ids.clear();
}

int32_t TableSampler::Sample() {
  return sampler_.Sample(Row(), history_.length(), history_);
}

std::vector<int32_t> TableSampler::Ranked() { return RankedOf(Row()); }

std::vector<int32_t> TableSampler::RankedOf(absl::Span<const float> logits) {
  std::array<model::ScoredToken, kVocabSize> best;
  const int count =
      sampler_.Rank(logits, history_.length(), history_, absl::MakeSpan(best));
  std::vector<int32_t> token_ids;
  for (int i = 0; i < count; ++i) {
    token_ids.push_back(best[static_cast<size_t>(i)].token_id);
  }
  return token_ids;
}

std::vector<int32_t> TableSampler::Likeliest() const {
  std::vector<int32_t> token_ids(kVocabSize);
  std::iota(token_ids.begin(), token_ids.end(), 0);
  std::stable_sort(
      token_ids.begin(), token_ids.end(), [row = Row()](int32_t a, int32_t b) {
        return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
      });
  return token_ids;
}

const model::TokenWeights& TableSampler::Weights() {
  if (weights_.token_ids.empty()) {
    sampler_.FillWeights(Row(), history_.length(), history_, &weights_);
  }
  return weights_;
}

bool TableSampler::CanDraw(int32_t token_id) {
  const std::vector<int32_t>& ids = Weights().token_ids;
  return std::binary_search(ids.begin(), ids.end(), token_id);
}

}  // namespace nacre::protocol
