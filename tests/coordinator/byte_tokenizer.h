// A tokenizer for tests: one token a byte, so that every cut of a text into
// tokens, characters split included, is easy to write down.
//
// Immutable, thread-safe.

#ifndef TESTS_COORDINATOR_BYTE_TOKENIZER_H_
#define TESTS_COORDINATOR_BYTE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

class ByteTokenizer final : public tokenizer::Tokenizer {
 public:
  static constexpr int32_t kBos = 256;
  static constexpr int32_t kEos = 257;
  static constexpr int kVocabSize = 258;

  explicit ByteTokenizer(bool adds_bos = true) : adds_bos_(adds_bos) {
    std::vector<std::string> pieces;
    for (int byte = 0; byte < 256; ++byte) {
      pieces.push_back(
          absl::StrCat("<", absl::Hex(byte, absl::kZeroPad2), ">"));
    }
    pieces.push_back("<s>");
    pieces.push_back("</s>");
    vocabulary_ = tokenizer::Vocabulary(std::move(pieces));
    special_.assign(kVocabSize, false);
    special_[kBos] = special_[kEos] = true;
    bos_id_ = kBos;
    eos_id_ = kEos;
  }

  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text, tokenizer::EncodeOptions options) const override {
    if (absl::StrContains(text, '\x01')) {
      return absl::InvalidArgumentError("byte 1 is not text");
    }
    std::vector<int32_t> ids;
    if (adds_bos_ && options.add_special_tokens) ids.push_back(kBos);
    for (char c : text) ids.push_back(static_cast<uint8_t>(c));
    return ids;
  }

  std::unique_ptr<tokenizer::IncrementalDecoder> NewDecoder(
      bool skip_special_tokens) const override {
    return std::make_unique<Decoder>(skip_special_tokens);
  }

 private:
  // Holds back a started character; takes it for granted that the rest comes.
  class Decoder final : public tokenizer::IncrementalDecoder {
   public:
    explicit Decoder(bool skip_special) : skip_special_(skip_special) {}

    void Append(int32_t id, std::string* text) override {
      if (id == kBos || id == kEos) {
        Finish(text);
        if (!skip_special_) absl::StrAppend(text, id == kBos ? "<s>" : "</s>");
        return;
      }
      if (id < 0 || id > 255) return;
      held_.push_back(static_cast<char>(id));
      if (held_.size() == Length(static_cast<uint8_t>(held_[0]))) {
        text->append(held_);
        held_.clear();
      }
    }

    void Finish(std::string* text) override {
      if (!held_.empty()) text->append("\xEF\xBF\xBD");
      held_.clear();
    }

   private:
    static size_t Length(uint8_t first) {
      return first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    }
    const bool skip_special_;
    std::string held_;
  };

  const bool adds_bos_;
};

// The tokens of a text.
inline std::vector<int32_t> Bytes(absl::string_view text) {
  std::vector<int32_t> ids;
  for (char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

}  // namespace nacre::coordinator

#endif  // TESTS_COORDINATOR_BYTE_TOKENIZER_H_
