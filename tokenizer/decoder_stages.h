// The stages a tokenizer.json decoder is made of. Each owns the next one and
// borrows its settings. One stream and one thread each.

#ifndef TOKENIZER_DECODER_STAGES_H_
#define TOKENIZER_DECODER_STAGES_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "tokenizer/decoder.h"
#include "tokenizer/pattern.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {

// The end of the chain: appends to **output.
class OutputStage : public DecoderStage {
 public:
  explicit OutputStage(std::string** output) : output_(output) {}
  void Write(absl::string_view fragment, bool ends_token) override;
  void Finish() override {}

 private:
  std::string** output_;
};

// A stage with a next one; by default the end is passed on.
class LinkedStage : public DecoderStage {
 public:
  explicit LinkedStage(std::unique_ptr<DecoderStage> next)
      : next_(std::move(next)) {}
  void Finish() override { next_->Finish(); }

 protected:
  DecoderStage& next() { return *next_; }

 private:
  std::unique_ptr<DecoderStage> next_;
};

// A stage that needs the whole token: collects its fragments.
class TokenStage : public LinkedStage {
 public:
  using LinkedStage::LinkedStage;
  void Write(absl::string_view fragment, bool ends_token) final;

 protected:
  virtual void WriteToken(absl::string_view token) = 0;

 private:
  std::string collected_;
};

// A space before every token but the first (a file without a decoder).
class JoinStage : public LinkedStage {
 public:
  using LinkedStage::LinkedStage;
  void Write(absl::string_view fragment, bool ends_token) override;

 private:
  bool any_token_ = false;
  bool in_token_ = false;
};

// The byte alphabet back to bytes, all tokens to one of valid UTF-8.
class ByteLevelStage : public TokenStage {
 public:
  using TokenStage::TokenStage;
  void Finish() override;

 protected:
  void WriteToken(absl::string_view token) override;

 private:
  Utf8Assembler bytes_{Utf8Assembler::Replacement::kPerSubpart};
};

// "<0xE2>" to bytes. A run of them that is not valid UTF-8 as a whole becomes
// one U+FFFD for each byte. So nothing of a run is known before it ends.
class ByteFallbackStage : public TokenStage {
 public:
  using TokenStage::TokenStage;
  void Finish() override;

 protected:
  void WriteToken(absl::string_view token) override;

 private:
  void EndRun();

  std::string run_;
};

// All tokens to one.
class FuseStage : public LinkedStage {
 public:
  using LinkedStage::LinkedStage;
  void Write(absl::string_view fragment, bool ends_token) override;
  void Finish() override;
};

class ReplaceStage : public TokenStage {
 public:
  ReplaceStage(const Pattern* pattern, absl::string_view content,
               std::unique_ptr<DecoderStage> next)
      : TokenStage(std::move(next)), pattern_(pattern), content_(content) {}

 protected:
  void WriteToken(absl::string_view token) override;

 private:
  const Pattern* pattern_;
  absl::string_view content_;
};

// Removes up to `start` and `stop` times one character from the two ends of
// each token. Holds back at most `stop` of them.
class StripStage : public LinkedStage {
 public:
  StripStage(absl::string_view character, size_t start, size_t stop,
             std::unique_ptr<DecoderStage> next)
      : LinkedStage(std::move(next)),
        character_(character),
        start_(start),
        stop_(stop),
        start_left_(start) {}
  void Write(absl::string_view fragment, bool ends_token) override;

 private:
  absl::string_view character_;
  size_t start_;
  size_t stop_;
  size_t start_left_;  // how many may still go from this token's beginning
  size_t held_ = 0;    // trailing characters held back
};

// The space symbol to spaces; in the first token it is dropped.
class MetaspaceStage : public LinkedStage {
 public:
  MetaspaceStage(absl::string_view symbol, bool drop_first,
                 std::unique_ptr<DecoderStage> next)
      : LinkedStage(std::move(next)), symbol_(symbol), drop_(drop_first) {}
  void Write(absl::string_view fragment, bool ends_token) override;

 private:
  absl::string_view symbol_;
  bool drop_;  // still in the first token
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_DECODER_STAGES_H_
