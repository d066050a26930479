// Text to token ids and back. A Tokenizer is immutable after load and safe to
// use from any number of threads; decoders are used by one thread at a time.

#ifndef TOKENIZER_TOKENIZER_H_
#define TOKENIZER_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tokenizer/text_range.h"
#include "tokenizer/vocabulary.h"

namespace nacre::tokenizer {

struct EncodeOptions {
  // Add BOS and EOS as the model folder asks for.
  bool add_special_tokens = true;
  // Read the text of a special token ("</s>") as that token, not as letters.
  bool parse_special_tokens = true;
  // A text with more ids is refused as soon as that is certain.
  size_t max_ids = std::numeric_limits<size_t>::max();
  // What a user wrote, of valid UTF-8, at whole characters: sorted, disjoint,
  // not empty. A token that is special, or named as such (<|...|>, <｜...｜>),
  // whose first or last byte is the user's is read as letters. A text without
  // one has the ids that it has without ranges. Memory of the caller's.
  absl::Span<const TextRange> user_text;
};

// Texts longer than this are refused.
inline constexpr size_t kMaxTextBytes = size_t{1} << 28;

// Turns ids into text one by one. What Append and Finish wrote, joined, is
// Decode of all the ids. Borrows its tokenizer, which must outlive it.
class IncrementalDecoder {
 public:
  virtual ~IncrementalDecoder() = default;
  // Appends to *text what became certain: whole UTF-8 characters only. The cost
  // does not depend on what came before.
  virtual void Append(int32_t id, std::string* text) = 0;
  // Appends what was held back. Nothing may follow.
  virtual void Finish(std::string* text) = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Invalid UTF-8: a SentencePiece model reads each bad byte as U+FFFD, as the
  // library does; a tokenizer.json gives INVALID_ARGUMENT with the offset.
  // INVALID_ARGUMENT: text over kMaxTextBytes. RESOURCE_EXHAUSTED: a pattern of
  // the file backtracks too much on this text, or its steps make more of it
  // than growth_limit.h says. OUT_OF_RANGE: the text has more
  // ids than `options.max_ids`. It takes the time and memory of a text of so
  // many, and what reading and normalizing all of it takes.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text, EncodeOptions options = {}) const = 0;

  virtual std::unique_ptr<IncrementalDecoder> NewDecoder(
      bool skip_special_tokens = true) const = 0;

  // Ids outside the vocabulary are passed over. Bytes that are no UTF-8 become
  // U+FFFD just as the mirrored library shows them.
  std::string Decode(absl::Span<const int32_t> ids,
                     bool skip_special_tokens = true) const;

  // One more than the largest id. A model's head may be larger (padded).
  int vocab_size() const { return vocabulary_.size(); }
  // A token stands for at most so many bytes of a normalized text.
  size_t longest_piece_bytes() const {
    return vocabulary_.longest_piece_bytes();
  }
  // Empty when the id is out of range or unused.
  absl::string_view IdToPiece(int32_t id) const {
    return vocabulary_.IdToPiece(id);
  }
  std::optional<int32_t> PieceToId(absl::string_view piece) const {
    return vocabulary_.PieceToId(piece);
  }
  std::optional<int32_t> bos_id() const { return bos_id_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }
  // Control and special tokens. Decode leaves them out by default, except added
  // ones that the normalizer changes (docs/tokenizers.md).
  bool IsSpecial(int32_t id) const {
    return id >= 0 && id < vocab_size() && special_[id];
  }
  // Equal for two tokenizers iff ids 0 .. common_size - 1 have equal pieces
  // (vocabulary.h has the exact bytes).
  std::string VocabularyHash(int common_size) const {
    return vocabulary_.Hash(common_size);
  }

 protected:
  Tokenizer() = default;

  // Set once by the readers. special_ is [vocab_size].
  Vocabulary vocabulary_;
  std::vector<bool> special_;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
};

// Reads tokenizer.json, or tokenizer.model if that is absent (SentencePiece, or
// tiktoken with what config.json says), or qwen.tiktoken, and the files beside
// it that tokenizer_config.h names; of a GGUF file, its metadata.
// NOT_FOUND: none of these files is in the folder. INVALID_ARGUMENT or
// DATA_LOSS: a file is malformed; UNIMPLEMENTED: it needs something that is not
// supported. Messages name the file and what is wrong in it.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::string& model_dir);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_TOKENIZER_H_
