#include "tokenizer/normalizer.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tokenizer/unicode_normalization.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

std::string StripSpace(absl::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    size_t size;
    if (!IsWhitespace(DecodeUtf8(text, &size))) break;
    text.remove_prefix(size);
  }
  while (right && !text.empty()) {
    const char32_t last = DecodeLastUtf8(text);
    if (!IsWhitespace(last)) break;
    std::string encoded;
    AppendUtf8(last, &encoded);
    text.remove_suffix(encoded.size());
  }
  return std::string(text);
}

constexpr char kWhat[] = "the normal form";

// Of a form that joins no ASCII character to what is before it.
absl::Status MoveByForm(
    absl::string_view text,
    absl::FunctionRef<absl::StatusOr<std::string>(absl::string_view)> form,
    absl::Span<size_t> marks) {
  size_t done = 0;  // bytes of the text, a beginning by itself
  size_t new_done = 0;
  for (size_t& mark : marks) {
    size_t piece = mark;
    while (piece > done && piece < text.size() &&
           (static_cast<uint8_t>(text[piece]) & 0x80) != 0) {
      --piece;
    }
    NACRE_ASSIGN_OR_RETURN(const std::string before,
                           form(text.substr(done, piece - done)));
    NACRE_ASSIGN_OR_RETURN(const std::string last,
                           form(text.substr(piece, mark - piece)));
    new_done += before.size();
    done = piece;
    mark = new_done + last.size();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::Parse(const Json* json) {
  Normalizer normalizer;
  if (json != nullptr) {
    NACRE_RETURN_IF_ERROR(ForEachComponent(
        *json, "normalizers", "normalizer",
        [&normalizer](const Json& component, const std::string& type,
                      const std::string& path) {
          return normalizer.AddStep(component, type, path);
        }));
  }
  return normalizer;
}

absl::Status Normalizer::AddStep(const Json& json, const std::string& type,
                                 const std::string& path) {
  Step step;
  if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    NACRE_ASSIGN_OR_RETURN(step.content, StringField(json, "prepend", path));
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    NACRE_ASSIGN_OR_RETURN(step.pattern, Pattern::Parse(json, path));
    NACRE_ASSIGN_OR_RETURN(step.content, StringField(json, "content", path));
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    NACRE_ASSIGN_OR_RETURN(step.left,
                           BoolFieldOr(json, "strip_left", true, path));
    NACRE_ASSIGN_OR_RETURN(step.right,
                           BoolFieldOr(json, "strip_right", true, path));
  } else if (type == "NFC") {
    step.kind = Kind::kNfc;
  } else if (type == "NFD") {
    step.kind = Kind::kNfd;
  } else if (type == "NFKC") {
    step.kind = Kind::kNfkc;
  } else if (type == "NFKD") {
    step.kind = Kind::kNfkd;
  } else if (type == "Lowercase") {
    step.kind = Kind::kLowercase;
  } else {
    return UnsupportedType(path, type);
  }
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<std::string> Normalizer::Apply(const Step& step,
                                              absl::string_view text,
                                              const GrowthLimit& limit,
                                              size_t* head) {
  const auto unicode = [&](UnicodeForm form) {
    *head = NormalizeUnicode(text.substr(0, *head), form, limit.most()).size();
    return NormalizeUnicode(text, form, limit.most());
  };
  switch (step.kind) {
    case Kind::kPrepend:
      if (text.empty()) return std::string();
      NACRE_RETURN_IF_ERROR(
          limit.Check(kWhat, step.content.size() + text.size()));
      if (*head > 0) *head += step.content.size();
      return absl::StrCat(step.content, text);
    case Kind::kReplace:
      return step.pattern.ReplaceAll(text, step.content, &limit, head);
    case Kind::kNfc:
      return unicode({.compatibility = false, .compose = true});
    case Kind::kNfd:
      return unicode({.compatibility = false, .compose = false});
    case Kind::kNfkc:
      return unicode({.compatibility = true, .compose = true});
    case Kind::kNfkd:
      return unicode({.compatibility = true, .compose = false});
    case Kind::kLowercase:
      *head = LowercaseUnicode(text.substr(0, *head)).size();
      return LowercaseUnicode(text);
    case Kind::kStrip:
      const size_t stripped =
          text.size() - StripSpace(text, step.left, false).size();
      *head -= std::min(*head, stripped);
      return StripSpace(text, step.left, step.right);
  }
  return std::string(text);
}

absl::Status Normalizer::MoveMarks(const Step& step, absl::string_view text,
                                   const GrowthLimit& limit,
                                   absl::Span<size_t> marks) {
  if (marks.empty()) return absl::OkStatus();
  switch (step.kind) {
    case Kind::kPrepend:
      if (text.empty()) return absl::OkStatus();
      for (size_t& mark : marks) mark += mark > 0 ? step.content.size() : 0;
      return absl::OkStatus();
    case Kind::kReplace:
      return step.pattern.MoveMarks(text, step.content.size(), marks,
                                    limit.steps());
    case Kind::kStrip: {
      const size_t stripped =
          text.size() - StripSpace(text, step.left, false).size();
      for (size_t& mark : marks) mark -= std::min(mark, stripped);
      return absl::OkStatus();
    }
    default: {
      const auto form = [&](absl::string_view piece) {
        size_t unused = 0;
        return Apply(step, piece, limit, &unused);
      };
      return MoveByForm(text, form, marks);
    }
  }
}

absl::StatusOr<std::string> Normalizer::Normalize(absl::string_view text,
                                                  size_t* head,
                                                  absl::Span<size_t> marks,
                                                  StepBudget* steps) const {
  size_t unused = 0;
  if (head == nullptr) head = &unused;
  std::string result(text);
  // What follows may have been composed with the last character before.
  const auto to_character = [&](size_t* length) {
    *length = std::min(*length, result.size());
    while (*length < result.size() &&
           (static_cast<uint8_t>(result[*length]) & 0xC0) == 0x80) {
      ++*length;
    }
  };
  const GrowthLimit limit(text.size(), steps);
  for (const Step& step : steps_) {
    NACRE_RETURN_IF_ERROR(MoveMarks(step, result, limit, marks));
    NACRE_ASSIGN_OR_RETURN(result, Apply(step, result, limit, head));
    NACRE_RETURN_IF_ERROR(limit.Check(kWhat, result.size()));
    to_character(head);
    for (size_t& mark : marks) to_character(&mark);
  }
  return result;
}

}  // namespace nacre::tokenizer
