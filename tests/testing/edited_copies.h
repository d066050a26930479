// Requests that ask for an edited copy of a given text, with their answers:
// what drafts from suffixes are for. Made from the prompts of HumanEval, since
// a model of a few million parameters does not copy on request; a table model
// says the answers (ReplayedText).
//
// Pure values.

#ifndef TESTS_TESTING_EDITED_COPIES_H_
#define TESTS_TESTING_EDITED_COPIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tokenizer/tokenizer.h"

namespace nacre::testing {

struct EditedCopy {
  std::string id;      // of the prompt
  std::string edit;    // "rename the function"
  std::string prompt;  // what to do, and with which text
  std::string answer;  // the text, edited
};

// `jsonl`: of each line `id` and `prompt`, Python source. One edit each, of the
// four in turn: another function's name, another parameter's name, asserts in
// place of examples, another word in the text. Lines that none of them changes
// are left out. INVALID_ARGUMENT: not such lines.
absl::StatusOr<std::vector<EditedCopy>> MakeEditedCopies(
    absl::string_view jsonl);

// A text that a model is to say once it has read the first `prompt_length`
// tokens.
struct ReplayedText {
  std::vector<int32_t> token_ids;
  int prompt_length = 0;

  int answer_length() const {
    return static_cast<int>(token_ids.size()) - prompt_length;
  }
  // Of a row after `tokens`: makes the text's next token by far the likeliest.
  // Other texts' rows stay.
  void Say(absl::Span<const int32_t> tokens, std::vector<float>* logits) const;
};

// Errors: of Encode.
absl::StatusOr<ReplayedText> Encoded(const EditedCopy& copy,
                                     const tokenizer::Tokenizer& tokenizer);

// Whether 16 tokens in a row are each the one at most 8 before: a text that
// says the same over and over, which is easy to draft and no copy.
bool Loops(absl::Span<const int32_t> token_ids);

}  // namespace nacre::testing

#endif  // TESTS_TESTING_EDITED_COPIES_H_
