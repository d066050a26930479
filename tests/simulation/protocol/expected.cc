#include "tests/simulation/protocol/expected.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "tests/simulation/protocol/table_sampler.h"

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

absl::optional<Finish> FinishOf(const coordinator::RequestSpec& request,
                                int32_t token_id, int number) {
  if (!request.ignore_eos && token_id == kEos) return Finish::kEos;
  const std::vector<int32_t>& stop_ids = request.stop_token_ids;
  if (std::find(stop_ids.begin(), stop_ids.end(), token_id) != stop_ids.end()) {
    return Finish::kStop;
  }
  if (number >= request.max_tokens) return Finish::kLength;
  return absl::nullopt;
}

Expected ShownOf(std::vector<int32_t> token_ids,
                 const coordinator::RequestSpec& request) {
  Expected expected;
  expected.token_ids = std::move(token_ids);
  size_t num_letters = expected.token_ids.size();
  expected.num_shown = static_cast<int>(num_letters);
  if (num_letters > 0) {
    expected.finish = FinishOf(request, expected.token_ids.back(),
                               static_cast<int>(num_letters));
    const bool silent_end = expected.finish.has_value() &&
                            expected.finish != Finish::kLength &&
                            !request.include_stop_string;
    if (silent_end) --num_letters;
  }
  for (size_t i = 0; i < num_letters; ++i) {
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

Expected ExpectedOutput(const LogitTable& table,
                        const coordinator::RequestSpec& request) {
  TableSampler sampler(&table, request);
  for (const int32_t id : request.prompt_ids) sampler.Push(id);
  std::vector<int32_t> token_ids;
  do {
    token_ids.push_back(sampler.Sample());
    sampler.Push(token_ids.back());
  } while (
      !FinishOf(request, token_ids.back(), static_cast<int>(token_ids.size()))
           .has_value());
  return ShownOf(std::move(token_ids), request);
}

}  // namespace nacre::protocol
