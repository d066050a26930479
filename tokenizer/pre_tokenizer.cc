#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status_macros.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/text_split.h"
#include "tokenizer/unicode_data.h"

namespace nacre::tokenizer {
namespace {

// GPT-2's pattern, built into ByteLevel.
constexpr char kByteLevelRegex[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|)"
    R"(\s+(?!\S)|\s+)";
// Rust's \w has the joiners, which Oniguruma's lacks.
constexpr char kWhitespaceRegex[] =
    R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)";

absl::StatusOr<SplitBehavior> ParseBehavior(const std::string& name,
                                            absl::string_view path) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ".behavior '", name.substr(0, 64), "' is not known"));
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::Parse(const Json* json) {
  PreTokenizer pre_tokenizer;
  if (json != nullptr) {
    NACRE_RETURN_IF_ERROR(ForEachComponent(
        *json, "pretokenizers", "pre_tokenizer",
        [&pre_tokenizer](const Json& component, const std::string& type,
                         const std::string& path) {
          return pre_tokenizer.AddStep(component, type, path);
        }));
  }
  return pre_tokenizer;
}

absl::Status PreTokenizer::AddStep(const Json& json, const std::string& type,
                                   const std::string& path) {
  Step step;
  if (type == "Split") {
    NACRE_ASSIGN_OR_RETURN(step, ParseSplit(json, path));
  } else if (type == "ByteLevel") {
    NACRE_ASSIGN_OR_RETURN(step, ParseByteLevel(json, path));
  } else if (type == "Metaspace") {
    NACRE_ASSIGN_OR_RETURN(step, ParseMetaspace(json, path));
  } else if (type == "Whitespace") {
    NACRE_ASSIGN_OR_RETURN(step.pattern, Pattern::FromRegex(kWhitespaceRegex));
    step.behavior = SplitBehavior::kRemoved;
    step.invert = true;
  } else if (type == "WhitespaceSplit") {
    NACRE_ASSIGN_OR_RETURN(step.pattern, Pattern::FromRegex(R"(\s)"));
    step.behavior = SplitBehavior::kRemoved;
  } else if (type == "Digits") {
    NACRE_ASSIGN_OR_RETURN(step.pattern, Pattern::FromRegex(kDigitsPattern));
    NACRE_ASSIGN_OR_RETURN(const bool individual,
                           BoolFieldOr(json, "individual_digits", false, path));
    step.behavior =
        individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
  } else if (type == "Punctuation") {
    NACRE_ASSIGN_OR_RETURN(step.pattern,
                           Pattern::FromRegex(kPunctuationPattern));
    NACRE_ASSIGN_OR_RETURN(const std::string behavior,
                           StringFieldOr(json, "behavior", "Isolated", path));
    NACRE_ASSIGN_OR_RETURN(step.behavior, ParseBehavior(behavior, path));
  } else {
    return UnsupportedType(path, type);
  }
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<PreTokenizer::Step> PreTokenizer::ParseSplit(
    const Json& json, const std::string& path) {
  Step step;
  NACRE_ASSIGN_OR_RETURN(step.pattern, Pattern::Parse(json, path));
  NACRE_ASSIGN_OR_RETURN(const std::string behavior,
                         StringField(json, "behavior", path));
  NACRE_ASSIGN_OR_RETURN(step.behavior, ParseBehavior(behavior, path));
  NACRE_ASSIGN_OR_RETURN(step.invert, BoolFieldOr(json, "invert", false, path));
  return step;
}

absl::StatusOr<PreTokenizer::Step> PreTokenizer::ParseByteLevel(
    const Json& json, const std::string& path) {
  Step step;
  step.byte_level = true;
  NACRE_ASSIGN_OR_RETURN(const bool add_prefix_space,
                         BoolFieldOr(json, "add_prefix_space", true, path));
  if (add_prefix_space) {
    step.prepend = Prepend::kAlways;
    step.prefix = " ";
  }
  NACRE_ASSIGN_OR_RETURN(const bool use_regex,
                         BoolFieldOr(json, "use_regex", true, path));
  if (use_regex) {
    NACRE_ASSIGN_OR_RETURN(step.pattern, Pattern::FromRegex(kByteLevelRegex));
  }
  return step;
}

absl::StatusOr<PreTokenizer::Step> PreTokenizer::ParseMetaspace(
    const Json& json, const std::string& path) {
  Step step;
  NACRE_ASSIGN_OR_RETURN(const MetaspaceFields fields,
                         ParseMetaspaceFields(json, path));
  step.space_replacement = fields.replacement;
  step.prefix = fields.replacement;
  const std::string& scheme = fields.prepend_scheme;
  if (scheme == "always") {
    step.prepend = Prepend::kAlways;
  } else if (scheme == "first") {
    step.prepend = Prepend::kFirst;
  } else if (scheme != "never") {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ".prepend_scheme '", scheme.substr(0, 64), "' is not known"));
  }
  NACRE_ASSIGN_OR_RETURN(const bool split,
                         BoolFieldOr(json, "split", true, path));
  if (split) {
    NACRE_ASSIGN_OR_RETURN(step.pattern,
                           Pattern::FromRegex(Regex::Escape(step.prefix)));
    step.behavior = SplitBehavior::kMergedWithNext;
  }
  return step;
}

absl::Status PreTokenizer::ApplyStep(const Step& step, const GrowthLimit& limit,
                                     Word word, TakeWord take) {
  const auto head = [&word] { return word.text.substr(0, word.head_bytes); };
  if (!step.space_replacement.empty()) {
    const auto replaced = {std::make_pair(" ", step.space_replacement)};
    word.head_bytes = absl::StrReplaceAll(head(), replaced).size();
    word.text = absl::StrReplaceAll(word.text, replaced);
  }
  const bool prepend = step.prepend == Prepend::kAlways ||
                       (step.prepend == Prepend::kFirst && word.head_bytes > 0);
  if (prepend && !absl::StartsWith(word.text, step.prefix)) {
    word.text = absl::StrCat(step.prefix, word.text);
    if (word.head_bytes > 0) word.head_bytes += step.prefix.size();
  }
  const auto add = [&](absl::string_view text, size_t head_bytes) {
    if (!step.byte_level) return take({std::string(text), head_bytes});
    return take({EncodeByteLevel(text),
                 head_bytes == 0
                     ? 0
                     : EncodeByteLevel(text.substr(0, head_bytes)).size()});
  };
  if (!step.pattern) return add(word.text, word.head_bytes);
  const auto add_range = [&](const TextRange& range) {
    return add(absl::string_view(word.text).substr(range.begin,
                                                   range.end - range.begin),
               std::max(range.begin, std::min(range.end, word.head_bytes)) -
                   range.begin);
  };
  TextSplitter splitter(step.behavior, step.invert, add_range);
  NACRE_RETURN_IF_ERROR(step.pattern->ForEachMatch(
      word.text, [&](const TextRange& match) { return splitter.Add(match); },
      limit.steps()));
  return splitter.Finish(word.text.size());
}

// Depth first: a word is done before the next one is cut off. So a text that is
// too long is not cut to its end.
absl::Status PreTokenizer::ApplyFrom(size_t index, const GrowthLimit& limit,
                                     Word word, TakeWord take) const {
  // A step makes a few times the bytes at most: it may end.
  NACRE_RETURN_IF_ERROR(limit.Check("a word", word.text.size()));
  if (index == steps_.size()) return take(std::move(word));
  return ApplyStep(steps_[index], limit, std::move(word), [&](Word part) {
    return ApplyFrom(index + 1, limit, std::move(part), take);
  });
}

absl::Status PreTokenizer::Apply(Word word, TakeWord take,
                                 StepBudget* steps) const {
  const GrowthLimit limit(word.text.size(), steps);
  size_t bytes = 0;
  return ApplyFrom(0, limit, std::move(word), [&](Word part) {
    bytes += part.text.size();
    NACRE_RETURN_IF_ERROR(limit.Check("the words", bytes));
    return take(std::move(part));
  });
}

}  // namespace nacre::tokenizer
