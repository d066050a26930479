#include "gateway/refused_fields.h"

#include <cstddef>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/quoted.h"

namespace nacre::gateway {
namespace {

// Null and an empty list are always neutral.
struct RefusedField {
  const char* name;
  const char* neutral;  // JSON that changes nothing besides, or null
};

constexpr RefusedField kRefused[] = {
    {"suffix", "\"\""},
    {"audio", "null"},
    {"modalities", "[\"text\"]"},
    {"prediction", "null"},
    {"web_search_options", "null"},
    {"functions", "null"},
    {"function_call", "\"none\""},
    {"guided_json", "null"},
    {"guided_regex", "\"\""},
    {"guided_choice", "null"},
    {"guided_grammar", "\"\""},
    {"structured_outputs", "{}"},
    {"grammar", "\"\""},
    {"json_schema", "null"},
    {"prompt_embeds", "null"},
    {"cache_salt", "\"\""},
    {"bad_words", "null"},
    {"allowed_token_ids", "null"},
    {"logits_processors", "null"},
    {"use_beam_search", "false"},
    {"length_penalty", "1"},
    {"truncate_prompt_tokens", "null"},
    {"continue_final_message", "false"},
    {"spaces_between_special_tokens", "true"},
};

// What the other kind of request has.
constexpr RefusedField kRefusedOfChats[] = {
    {"prompt", "\"\""},
    {"echo", "false"},
};
constexpr RefusedField kRefusedOfCompletions[] = {
    {"top_logprobs", "0"},
};

constexpr const char* kIgnorable[] = {"user",
                                      "store",
                                      "metadata",
                                      "service_tier",
                                      "priority",
                                      "safety_identifier",
                                      "verbosity",
                                      "prompt_cache_key",
                                      "reasoning_effort",
                                      "parallel_tool_calls",
                                      "prompt_cache_retention"};

void Refuse(const char* name, const OrderedJson& found, FieldReader* reader) {
  reader->Fail(Unsupported(absl::StrCat(reader->NameOf(name), " is not ",
                                        "supported (found ", Shown(found), ")"),
                           reader->NameOf(name)));
}

template <size_t kSize>
void RefuseAll(const RefusedField (&fields)[kSize], FieldReader* reader) {
  for (const RefusedField& field : fields) {
    const OrderedJson* const found = reader->Find(field.name);
    if (found == nullptr || (found->is_array() && found->empty()) ||
        *found == OrderedJson::parse(field.neutral)) {
      continue;
    }
    Refuse(field.name, *found, reader);
  }
}

// Each version of vLLM has others.
// null, which no reader finds, is another way to leave a field out.
bool IsEmptyList(const OrderedJson& value) {
  return value.is_array() && value.empty();
}

void RefuseGuided(FieldReader* reader) {
  for (const std::string& name : reader->Unknown()) {
    // The backend alone constrains nothing.
    if (!absl::StartsWith(name, "guided_") ||
        name == "guided_decoding_backend") {
      continue;
    }
    const OrderedJson* const found = reader->Find(name.c_str());
    if (found == nullptr || *found == false || *found == "" ||
        IsEmptyList(*found)) {
      continue;
    }
    reader->Fail(Unsupported(absl::StrCat(Quoted(name), " is not supported ",
                                          "(found ", Shown(*found), ")"),
                             IsPlainName(name) ? name : ""));
  }
}

void CheckResponseFormat(FieldReader* reader) {
  const OrderedJson* const format = reader->Find("response_format");
  if (format == nullptr || IsEmptyList(*format)) return;
  if (format->is_object() && format->value("type", OrderedJson()) == "text") {
    return;
  }
  Refuse("response_format", *format, reader);
}

void CheckTools(FieldReader* reader) {
  const OrderedJson* const tools = reader->Find("tools");
  const OrderedJson* const choice = reader->Find("tool_choice");
  const bool has_tools = tools != nullptr && !IsEmptyList(*tools);
  if (has_tools && !tools->is_array()) {
    reader->FailField("tools", *tools, "a list");
  }
  // The template shows the tools; what the model says of them is text.
  if (choice != nullptr && *choice == "none") return;
  const bool is_neutral = choice == nullptr || IsEmptyList(*choice) ||
                          (*choice == "auto" && !has_tools);
  if (!is_neutral) {
    return Refuse("tool_choice", *choice, reader);
  }
  if (has_tools) {
    reader->Fail(
        Unsupported("tools are only served with tool_choice \"none\": calls of "
                    "tools are not read from the text",
                    "tools"));
  }
}

}  // namespace

void RefuseUnsupported(bool is_chat, int choices, FieldReader* reader) {
  RefuseAll(kRefused, reader);
  if (is_chat) {
    RefuseAll(kRefusedOfChats, reader);
  } else {
    RefuseAll(kRefusedOfCompletions, reader);
  }
  RefuseGuided(reader);
  const OrderedJson* const best_of = reader->Find("best_of");
  if (best_of != nullptr && !IsEmptyList(*best_of) && *best_of != choices) {
    Refuse("best_of", *best_of, reader);
  }
  CheckResponseFormat(reader);
  CheckTools(reader);
}

void PassIgnorable(FieldReader* reader) {
  for (const char* name : kIgnorable) reader->Find(name);
}

}  // namespace nacre::gateway
