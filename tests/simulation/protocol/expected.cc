#include "tests/simulation/protocol/expected.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "model/sampler.h"

namespace nacre::protocol {
namespace {

using coordinator::Finish;

class LetterDecoder final : public tokenizer::IncrementalDecoder {
 public:
  void Append(int32_t id, std::string* text) override {
    text->push_back(static_cast<char>('a' + id));
  }
  void Finish(std::string*) override {}
};

}  // namespace

LetterTokenizer::LetterTokenizer() {
  std::vector<std::string> pieces;
  for (int id = 0; id < kVocabSize; ++id) {
    pieces.emplace_back(1, static_cast<char>('a' + id));
  }
  vocabulary_ = tokenizer::Vocabulary(std::move(pieces));
  special_.assign(kVocabSize, false);
}

absl::StatusOr<std::vector<int32_t>> LetterTokenizer::Encode(
    absl::string_view text, tokenizer::EncodeOptions) const {
  std::vector<int32_t> ids;
  for (const char letter : text) ids.push_back(letter - 'a');
  return ids;
}

std::unique_ptr<tokenizer::IncrementalDecoder> LetterTokenizer::NewDecoder(
    bool) const {
  return std::make_unique<LetterDecoder>();
}

Expected ExpectedOutput(const LogitTable& table,
                        const coordinator::RequestSpec& request) {
  Expected expected;
  const int prompt_length = static_cast<int>(request.prompt_ids.size());
  const auto& stop_ids = request.stop_token_ids;
  model::EndRule end_rule{prompt_length + request.min_tokens, stop_ids};
  if (!request.ignore_eos) end_rule.token_ids.push_back(kEos);
  model::Sampler sampler(request.sampling, kVocabSize, std::move(end_rule));
  model::TokenHistory history(prompt_length);
  int32_t before = -1;
  int32_t last = -1;
  const auto push = [&](int32_t id) {
    before = std::exchange(last, id);
    history.Push(id);
  };
  for (const int32_t id : request.prompt_ids) push(id);
  bool silent_end = false;
  while (static_cast<int>(expected.token_ids.size()) < request.max_tokens) {
    const int32_t id = sampler.Sample(
        table.Row(before, last),
        prompt_length + static_cast<int>(expected.token_ids.size()), history);
    expected.token_ids.push_back(id);
    push(id);
    if (!request.ignore_eos && id == kEos) {
      expected.finish = Finish::kEos;
    } else if (std::find(stop_ids.begin(), stop_ids.end(), id) !=
               stop_ids.end()) {
      expected.finish = Finish::kStop;
    } else {
      continue;
    }
    silent_end = !request.include_stop_string;
    break;
  }
  const size_t count = expected.token_ids.size();
  expected.num_shown = static_cast<int>(count);
  for (size_t i = 0; i < count - (silent_end ? 1 : 0); ++i) {
    expected.text.push_back(static_cast<char>('a' + expected.token_ids[i]));
  }
  for (const std::string& stop : request.stop) {  // at most one
    // What must not end the text yet is not compared with it.
    const size_t begin =
        expected.text.find(stop, static_cast<size_t>(request.min_tokens));
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    expected.num_shown = static_cast<int>(end);
    expected.text.resize(request.include_stop_string ? end : begin);
    expected.finish = Finish::kStop;
  }
  return expected;
}

}  // namespace nacre::protocol
