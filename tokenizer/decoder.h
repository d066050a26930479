// The "decoder" of a tokenizer.json: tokens to text, as a chain of stages that
// each see one token at a time. Cost per token does not depend on what came
// before, and one code path serves whole texts and streams.
//
// Between stages a token travels in fragments of whole UTF-8 characters,
// because Fuse and ByteLevel make one token out of all of them.

#ifndef TOKENIZER_DECODER_H_
#define TOKENIZER_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/pattern.h"

namespace nacre::tokenizer {

// A stage at work: mutable, for one stream and one thread.
class DecoderStage {
 public:
  virtual ~DecoderStage() = default;
  // The next fragment of the current token, and whether the token ends here.
  virtual void Write(absl::string_view fragment, bool ends_token) = 0;
  // No token follows.
  virtual void Finish() = 0;
};

// The settings of the chain. Immutable, thread-safe.
class Decoder {
 public:
  // `json` is the field's value, or nullptr: tokens are then joined with
  // spaces. Knows Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip,
  // Metaspace. UNIMPLEMENTED: another type. INVALID_ARGUMENT: the Replace steps
  // together may make more than kMaxGrowth bytes of one.
  static constexpr size_t kMaxGrowth = 64;
  static absl::StatusOr<Decoder> Parse(const Json* json);

  // A chain that appends the text to **output, which is set before each call of
  // a stage and may change between calls.
  std::unique_ptr<DecoderStage> NewChain(std::string** output) const;

 private:
  enum class Kind {
    kJoinWithSpaces,
    kByteLevel,
    kByteFallback,
    kFuse,
    kReplace,
    kStrip,
    kMetaspace,
  };
  struct Step {
    Kind kind;
    std::string content;     // kReplace, kStrip (one character), kMetaspace
    Pattern pattern;         // kReplace
    size_t start = 0;        // kStrip: at most so many characters
    size_t stop = 0;         // kStrip
    bool drop_first = true;  // kMetaspace: the first token's spaces go
  };

  absl::Status AddStep(const Json& json, const std::string& type,
                       const std::string& path);
  static absl::StatusOr<Step> ParseStrip(const Json& json,
                                         const std::string& path);
  static absl::StatusOr<Step> ParseMetaspace(const Json& json,
                                             const std::string& path);
  static std::unique_ptr<DecoderStage> NewStage(
      const Step& step, std::unique_ptr<DecoderStage> next);

  std::vector<Step> steps_;  // Sequences are flattened
  size_t growth_ = 1;        // the most bytes that they make of one
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_DECODER_H_
