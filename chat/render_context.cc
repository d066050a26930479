#include "chat/render_context.h"

#include "chat/concat.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

// A level of the template takes some nested evaluations of ours.
constexpr int kEvaluationsPerLevel = 10;
constexpr int64_t kBytesPerStep = 64;

}  // namespace

absl::Status RenderContext::Charge(int64_t steps) {
  if (steps > limits_.steps - steps_) {
    steps_ = limits_.steps;
    return absl::ResourceExhaustedError(
        Concat("the template takes more than ", limits_.steps, " steps"));
  }
  steps_ += steps;
  return absl::OkStatus();
}

absl::Status RenderContext::Enter() {
  if (depth_ >= limits_.depth * kEvaluationsPerLevel) {
    return absl::ResourceExhaustedError(
        Concat("values or calls are nested deeper than ",
               limits_.depth * kEvaluationsPerLevel, " evaluations"));
  }
  ++depth_;
  return absl::OkStatus();
}

absl::StatusOr<Value> RenderContext::Finish(TextBuilder builder) {
  if (builder.overflowed()) {
    return absl::ResourceExhaustedError(
        Concat("a text is longer than ", limits_.output_bytes, " bytes"));
  }
  NACRE_RETURN_IF_ERROR(
      Charge(static_cast<int64_t>(builder.size()) / kBytesPerStep));
  Text* text = New<Text>();
  text->bytes = builder.TakeBytes();
  text->user = builder.TakeUser();
  text->ascii = IsAscii(text->bytes);
  return Value(static_cast<const Text*>(text));
}

absl::StatusOr<Value> RenderContext::String(std::string_view bytes, bool user) {
  TextBuilder builder = NewText();
  builder.Append(bytes, user);
  return Finish(std::move(builder));
}

absl::StatusOr<Value> RenderContext::Slice(const Text& text, size_t begin,
                                           size_t end) {
  TextBuilder builder = NewText();
  builder.Append(text, begin, end);
  NACRE_ASSIGN_OR_RETURN(const Value slice, Finish(std::move(builder)));
  if (text.safe) const_cast<Text&>(slice.text()).safe = true;
  return slice;
}

absl::StatusOr<Value> RenderContext::NewList(Kind kind,
                                             std::vector<Value> items) {
  NACRE_RETURN_IF_ERROR(Charge(static_cast<int64_t>(items.size()) / 4 + 1));
  List* list = New<List>();
  list->items = std::move(items);
  return Value(kind, list);
}

Value RenderContext::NewUndefined(std::string message, bool security) {
  Undefined* undefined = New<Undefined>();
  undefined->message = std::move(message);
  undefined->security = security;
  return Value(static_cast<const Undefined*>(undefined));
}

}  // namespace nacre::chat
