// A client's text to token ids, within what a client may ask for.

#ifndef COORDINATOR_API_TEXT_IDS_H_
#define COORDINATOR_API_TEXT_IDS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

// The most ids of one answer of Tokenize: most gRPC clients take 4 MiB of a
// message, and an id takes up to 3 bytes.
inline constexpr int kMaxAnswerIds = 1 << 20;

// The ids of a prompt. INVALID_ARGUMENT: there are more than the context has
// places, which ends the work as soon as it is certain; and what Encode says.
//
// A text that is far too long for the context is refused without any of the
// work. A token stands for at most the bytes of the longest piece. Normalizing
// a text leaves at least a quarter of it. (Texts from which it takes more, as
// megabytes of blanks, are refused as well.)
absl::StatusOr<std::vector<int32_t>> PromptTextIds(
    absl::string_view text, const tokenizer::Tokenizer& tokenizer,
    int context_length);

// The same for an answer of Tokenize, which may fill the context. Without a
// context (nothing is known of the model) kMaxAnswerIds alone is the limit.
absl::StatusOr<std::vector<int32_t>> AnswerIds(
    absl::string_view text, bool add_special_tokens,
    const tokenizer::Tokenizer& tokenizer, absl::optional<int> context_length);

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_TEXT_IDS_H_
