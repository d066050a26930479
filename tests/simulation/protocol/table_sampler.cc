#include "tests/simulation/protocol/table_sampler.h"

#include <algorithm>
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
