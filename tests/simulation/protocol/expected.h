// What a request must say: the target's own autoregressive stream, drawn one
// token at a time without any engine, cut as the request asks. Under the ratio
// test the stream is no function of the request, its cut is.
//
// Pure.

#ifndef TESTS_SIMULATION_PROTOCOL_EXPECTED_H_
#define TESTS_SIMULATION_PROTOCOL_EXPECTED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "coordinator/dispatch/request.h"
#include "tests/simulation/protocol/simulated_model.h"
#include "tokenizer/tokenizer.h"

namespace nacre::protocol {

struct Expected {
  // Until an end token or max_tokens, whatever the stop strings.
  std::vector<int32_t> token_ids;
  // As far as the client sees it.
  int num_shown = 0;
  std::string text;
  // Absent: more follows.
  absl::optional<coordinator::Finish> finish;
};

// Whether the request ends with this token, the generated token `number` from
// 1; a target knows nothing of stop strings.
absl::optional<coordinator::Finish> FinishOf(
    const coordinator::RequestSpec& request, int32_t token_id, int number);

// A stream of which perhaps more follows; none but its last token ends it.
Expected ShownOf(std::vector<int32_t> token_ids,
                 const coordinator::RequestSpec& request);

Expected ExpectedOutput(const LogitTable& table,
                        const coordinator::RequestSpec& request);

// Token id i is the letter 'a' + i.
class LetterTokenizer final : public tokenizer::Tokenizer {
 public:
  LetterTokenizer();
  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text, tokenizer::EncodeOptions options) const override;
  std::unique_ptr<tokenizer::IncrementalDecoder> NewDecoder(
      bool skip_special_tokens) const override;
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_EXPECTED_H_
