#include "tokenizer/pattern.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre::tokenizer {

absl::StatusOr<Pattern> Pattern::Parse(const Json& component,
                                       absl::string_view component_path) {
  const std::string path = absl::StrCat(component_path, ".pattern");
  const Json* const json = FindField(component, "pattern");
  if (json == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is missing"));
  }
  NACRE_RETURN_IF_ERROR(CheckObject(*json, path));
  Pattern pattern;
  if (FindField(*json, "Regex") != nullptr) {
    NACRE_ASSIGN_OR_RETURN(const std::string regex,
                           StringField(*json, "Regex", path));
    NACRE_ASSIGN_OR_RETURN(pattern.regex_,
                           Regex::Compile(regex, absl::StrCat(path, ".Regex")));
  } else {
    NACRE_ASSIGN_OR_RETURN(pattern.literal_,
                           StringField(*json, "String", path));
  }
  return pattern;
}

absl::StatusOr<Pattern> Pattern::FromRegex(absl::string_view regex) {
  Pattern pattern;
  NACRE_ASSIGN_OR_RETURN(pattern.regex_, Regex::Compile(regex, "pattern"));
  return pattern;
}

absl::Status Pattern::ForEachMatch(absl::string_view text, TakeMatch take,
                                   StepBudget* steps) const {
  if (regex_) return regex_->ForEachMatch(text, take, steps);
  if (literal_.empty()) return absl::OkStatus();
  size_t begin = text.find(literal_);
  while (begin != absl::string_view::npos) {
    NACRE_RETURN_IF_ERROR(take({begin, begin + literal_.size()}));
    begin = text.find(literal_, begin + literal_.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Pattern::ReplaceAll(absl::string_view text,
                                                absl::string_view content,
                                                const GrowthLimit* limit,
                                                size_t* head) const {
  std::string result;
  size_t done = 0;
  const size_t old_head = head == nullptr ? 0 : *head;
  size_t new_head = 0;
  const auto replace = [&](const TextRange& match) -> absl::Status {
    absl::StrAppend(&result, text.substr(done, match.begin - done));
    if (limit != nullptr) {
      NACRE_RETURN_IF_ERROR(
          limit->Check("the normal form", result.size() + content.size()));
    }
    if (done < old_head) {
      new_head =
          result.size() - (match.begin - std::min(match.begin, old_head));
    }
    absl::StrAppend(&result, content);
    if (match.end <= old_head) new_head = result.size();
    done = match.end;
    return absl::OkStatus();
  };
  NACRE_RETURN_IF_ERROR(
      ForEachMatch(text, replace, limit == nullptr ? nullptr : limit->steps()));
  if (done < old_head) new_head = result.size() + old_head - done;
  absl::StrAppend(&result, text.substr(done));
  if (head != nullptr) *head = new_head;
  return result;
}

size_t Pattern::MostOfByte(size_t size) const {
  // Of nothing, in front of each byte.
  if (regex_) return size + 1;
  return literal_.empty() ? 1 : (size + literal_.size() - 1) / literal_.size();
}

absl::Status Pattern::MoveMarks(absl::string_view text, size_t size,
                                absl::Span<size_t> marks,
                                StepBudget* steps) const {
  size_t moved = 0;
  size_t done = 0;      // bytes of the text
  size_t new_done = 0;  // what they became
  // Those below `end`, with no match between.
  const auto move_below = [&](size_t end) {
    for (; moved < marks.size() && marks[moved] < end; ++moved) {
      marks[moved] = new_done + marks[moved] - done;
    }
  };
  const auto move = [&](const TextRange& match) {
    // What replaces nothing belongs to what is before it.
    move_below(match.begin + (match.begin < match.end ? 1 : 0));
    new_done += match.begin - done;
    // A match that reaches beyond a beginning is what follows it.
    for (; moved < marks.size() && marks[moved] < match.end; ++moved) {
      marks[moved] = new_done;
    }
    new_done += size;
    done = match.end;
    return absl::OkStatus();
  };
  NACRE_RETURN_IF_ERROR(ForEachMatch(text, move, steps));
  move_below(text.size() + 1);
  return absl::OkStatus();
}

}  // namespace nacre::tokenizer
