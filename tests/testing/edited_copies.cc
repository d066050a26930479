#include "tests/testing/edited_copies.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/json.h"
#include "common/status_macros.h"

namespace nacre::testing {
namespace {

bool IsOfWord(char c) { return absl::ascii_isalnum(c) || c == '_'; }

std::string WithWord(absl::string_view text, absl::string_view word,
                     absl::string_view other) {
  std::string edited;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && IsOfWord(text[end])) ++end;
    const absl::string_view found =
        text.substr(at, std::max<size_t>(end - at, 1));
    absl::StrAppend(&edited, found == word ? other : found);
    at += found.size();
  }
  return edited;
}

// The word that begins at or after `at`.
std::string WordAt(absl::string_view text, size_t at) {
  while (at < text.size() && !IsOfWord(text[at])) ++at;
  size_t end = at;
  while (end < text.size() && IsOfWord(text[end])) ++end;
  return std::string(text.substr(at, end - at));
}

// ">>> f(1)" and "2" in the line after it become "assert f(1) == 2".
std::string WithAsserts(absl::string_view text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    const size_t at = lines[i].find(">>> ");
    if (at == std::string::npos) continue;
    lines[i] =
        absl::StrCat(lines[i].substr(0, at), "assert ", lines[i].substr(at + 4),
                     " == ", absl::StripAsciiWhitespace(lines[i + 1]));
    lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  std::string edited;
  for (const std::string& line : lines) {
    absl::StrAppend(&edited, edited.empty() ? "" : "\n", line);
  }
  return edited;
}

struct Edit {
  std::string name;
  std::string answer;
};

Edit MakeEdit(size_t kind, absl::string_view source) {
  const size_t def = source.rfind("def ");
  const size_t open = source.find('(', std::min(def, source.size()));
  if (open == absl::string_view::npos) return {};
  switch (kind) {
    case 0:
      return {"rename the function",
              WithWord(source, WordAt(source, def + 4), "solve_task")};
    case 1:
      return {"rename the first parameter",
              WithWord(source, WordAt(source, open), "given_value")};
    case 2:
      return {"write the examples as asserts", WithAsserts(source)};
    default:
      return {
          "say \"result\" for \"return\" and \"a list\" for \"list\"",
          WithWord(WithWord(source, "Return", "Result:"), "list", "a list")};
  }
}

}  // namespace

absl::StatusOr<std::vector<EditedCopy>> MakeEditedCopies(
    absl::string_view jsonl) {
  constexpr size_t kKinds = 4;
  std::vector<EditedCopy> copies;
  for (const absl::string_view line :
       absl::StrSplit(jsonl, '\n', absl::SkipEmpty())) {
    const auto json =
        nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
    if (!json.is_object() || !json.contains("id") || !json["id"].is_string() ||
        !json.contains("prompt") || !json["prompt"].is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no line with id and prompt: ", line.substr(0, 64)));
    }
    const std::string text = json["prompt"];
    const absl::string_view source = absl::StripAsciiWhitespace(text);
    for (size_t i = 0; i < kKinds; ++i) {
      Edit edit = MakeEdit((copies.size() + i) % kKinds, source);
      if (edit.answer.empty() || edit.answer == source) continue;
      copies.push_back({json["id"], edit.name,
                        absl::StrCat("Copy this code, but ", edit.name, ":\n\n",
                                     source, "\n\nThe copy:\n\n"),
                        std::move(edit.answer)});
      break;
    }
  }
  return copies;
}

void ReplayedText::Say(absl::Span<const int32_t> tokens,
                       std::vector<float>* logits) const {
  constexpr float kFar = 1000;
  if (tokens.size() >= token_ids.size() ||
      !std::equal(tokens.begin(), tokens.end(), token_ids.begin())) {
    return;
  }
  (*logits)[static_cast<size_t>(token_ids[tokens.size()])] += kFar;
}

absl::StatusOr<ReplayedText> Encoded(const EditedCopy& copy,
                                     const tokenizer::Tokenizer& tokenizer) {
  NACRE_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt,
                         tokenizer.Encode(copy.prompt));
  ReplayedText text;
  NACRE_ASSIGN_OR_RETURN(
      text.token_ids, tokenizer.Encode(absl::StrCat(copy.prompt, copy.answer)));
  // A token may go across the border.
  const auto border =
      std::mismatch(prompt.begin(), prompt.end(), text.token_ids.begin(),
                    text.token_ids.end());
  text.prompt_length = static_cast<int>(border.first - prompt.begin());
  return text;
}

bool Loops(absl::Span<const int32_t> token_ids) {
  constexpr size_t kMaxPeriod = 8;
  constexpr int kRun = 16;
  for (size_t period = 1; period <= kMaxPeriod; ++period) {
    int run = 0;
    for (size_t i = period; i < token_ids.size(); ++i) {
      run = token_ids[i] == token_ids[i - period] ? run + 1 : 0;
      if (run == kRun) return true;
    }
  }
  return false;
}

}  // namespace nacre::testing
