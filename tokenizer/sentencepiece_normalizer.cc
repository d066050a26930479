#include "tokenizer/sentencepiece_normalizer.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "tokenizer/growth_limit.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

uint32_t LittleEndian32(absl::string_view bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) {
    value = value << 8 | static_cast<uint8_t>(bytes[i]);
  }
  return value;
}

// A unit of the double array (the layout of darts-clone, 2011):
// - bits 10-30: the offset to the children, which bit 9 scales by 256;
// - bit 8: whether child 0 is a value;
// - the low byte and bit 31: the label.
constexpr uint32_t kLabelMask = (1u << 31) | 0xFF;
constexpr uint32_t kValueMask = (1u << 31) - 1;
bool HasValue(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t ChildOffset(uint32_t unit) {
  return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

}  // namespace

absl::StatusOr<SentencePieceNormalizer> SentencePieceNormalizer::Create(
    SentencePieceNormalization spec) {
  SentencePieceNormalizer normalizer;
  const absl::string_view charsmap = spec.precompiled_charsmap;
  if (!charsmap.empty()) {
    const size_t trie_bytes =
        charsmap.size() < 4 ? 0 : LittleEndian32(charsmap.substr(0, 4));
    if (charsmap.size() < 4 || trie_bytes == 0 || trie_bytes % 4 != 0 ||
        trie_bytes >= charsmap.size() - 4) {
      return absl::DataLossError(absl::StrCat(
          "normalizer_spec.precompiled_charsmap: a trie of ", trie_bytes,
          " bytes does not fit the ", charsmap.size(), " bytes given"));
    }
    const absl::string_view outputs = charsmap.substr(4 + trie_bytes);
    if (outputs.back() != '\0') {
      return absl::DataLossError(
          "normalizer_spec.precompiled_charsmap does not end in a NUL byte");
    }
    // Each time that a rule applies its text is read.
    for (size_t begin = 0; begin < outputs.size();) {
      const size_t size = outputs.find('\0', begin) - begin;
      if (size > kMaxRuleBytes) {
        return absl::DataLossError(
            absl::StrCat("normalizer_spec.precompiled_charsmap has a text of ",
                         size, " bytes, the limit is ", kMaxRuleBytes));
      }
      begin += size + 1;
    }
    for (size_t i = 0; i < trie_bytes; i += 4) {
      normalizer.units_.push_back(LittleEndian32(charsmap.substr(4 + i, 4)));
    }
    normalizer.outputs_ = std::string(outputs);
  }
  normalizer.spec_ = std::move(spec);
  normalizer.spec_.precompiled_charsmap.clear();
  return normalizer;
}

size_t SentencePieceNormalizer::LongestRule(absl::string_view text,
                                            absl::string_view* output) const {
  if (units_.empty()) return 0;
  size_t longest = 0;
  size_t position = ChildOffset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    position ^= byte;
    if (position >= units_.size()) break;
    const uint32_t unit = units_[position];
    if ((unit & kLabelMask) != byte) break;
    position ^= ChildOffset(unit);
    if (position >= units_.size()) break;
    if (HasValue(unit)) {
      const uint32_t value = units_[position] & kValueMask;
      if (value >= outputs_.size()) break;
      longest = i + 1;
      *output = absl::string_view(outputs_.data() + value);
    }
  }
  return longest;
}

SentencePieceNormalizer::Step SentencePieceNormalizer::NormalizePrefix(
    absl::string_view text, const PrefixTrie& user_defined) const {
  if (const size_t size = user_defined.LongestPrefix(text).size; size > 0) {
    return {text.substr(0, size), size};
  }
  absl::string_view output;
  if (const size_t size = LongestRule(text, &output); size > 0) {
    return {output, size};
  }
  const Utf8Prefix prefix = ScanUtf8(text);
  if (prefix.state != Utf8State::kComplete) return {kReplacementCharacter, 1};
  return {text.substr(0, prefix.size), prefix.size};
}

absl::StatusOr<std::string> SentencePieceNormalizer::Normalize(
    absl::string_view text, const PrefixTrie& user_defined,
    bool allow_dummy_prefix) const {
  const GrowthLimit limit(text.size());
  std::string result;
  const absl::string_view space = spec_.escape_whitespaces ? kSpaceSymbol : " ";
  const bool trim = spec_.remove_extra_whitespaces;
  const bool dummy = spec_.add_dummy_prefix && allow_dummy_prefix;
  const bool suffix = spec_.treat_whitespace_as_suffix;

  if (trim) {
    while (!text.empty()) {
      const Step step = NormalizePrefix(text, user_defined);
      if (step.output != " ") break;
      text.remove_prefix(step.consumed);
    }
  }
  if (text.empty()) return result;
  result.reserve(text.size() + text.size() / 2);
  if (dummy && !suffix) absl::StrAppend(&result, space);

  bool after_space = trim;
  while (!text.empty()) {
    const Step step = NormalizePrefix(text, user_defined);
    text.remove_prefix(step.consumed);
    absl::string_view output = step.output;
    while (after_space && absl::ConsumePrefix(&output, " ")) {
    }
    if (output.empty()) continue;
    for (const char c : output) {
      if (c == ' ') {
        absl::StrAppend(&result, space);
      } else {
        result.push_back(c);
      }
    }
    NACRE_RETURN_IF_ERROR(limit.Check("the normal form", result.size()));
    after_space = trim && absl::EndsWith(output, " ");
  }
  if (trim) {
    size_t size = result.size();
    while (absl::EndsWith(absl::string_view(result).substr(0, size), space)) {
      size -= space.size();
    }
    result.resize(size);
  }
  if (dummy && suffix) absl::StrAppend(&result, space);
  return result;
}

}  // namespace nacre::tokenizer
