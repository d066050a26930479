#include "gateway/resume_convert.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gateway/cut_answer.h"

namespace nacre::gateway {
namespace {

constexpr size_t kMaxStartBytes = 1024;
constexpr size_t kMaxResumedIds = size_t{1} << 22;

// A field that must be there.
const OrderedJson* Needed(const char* key, FieldReader* reader) {
  const OrderedJson* const field = reader->Find(key);
  if (field == nullptr) {
    reader->Fail(BadRequest(absl::StrCat(reader->NameOf(key), " is missing"),
                            reader->NameOf(key)));
  }
  return field;
}

std::string NeededText(const char* key, FieldReader* reader) {
  if (Needed(key, reader) == nullptr) return "";
  std::string text = reader->Text(key, kMaxStartBytes).value_or("");
  if (text.empty()) reader->FailField(key, "", "the answer's");
  return text;
}

// Names that are not known are mistakes.
void RefuseUnknown(FieldReader* reader, FieldReader* outer) {
  for (const std::string& name : reader->Unknown()) {
    const std::string full = reader->NameOf(name.c_str());
    reader->Fail(Unsupported(absl::StrCat(full, " is not known"), "nacre"));
  }
  if (reader->error()) outer->Fail(*reader->error());
}

// As StartJson writes it: a string, since many readers of JSON keep 53 bits of
// a number. A parser takes " +5" and "05", too, which no answer has.
std::optional<uint64_t> SeedOf(FieldReader* reader) {
  const OrderedJson* const field = Needed("seed", reader);
  if (field == nullptr) return std::nullopt;
  uint64_t seed = 0;
  if (field->is_string()) {
    const auto& text = field->get_ref<const std::string&>();
    if (absl::SimpleAtoi(text, &seed) && absl::StrCat(seed) == text) {
      return seed;
    }
  }
  reader->FailField(
      "seed", *field,
      "the answer's: a string of the digits of a whole number below 2^64");
  return std::nullopt;
}

void ReadStart(FieldReader* outer, ApiRequest* request) {
  const OrderedJson* const object = Needed("start", outer);
  if (object == nullptr) return;
  if (!object->is_object()) {
    return outer->FailField("start", *object, "an object");
  }
  FieldReader reader(*object, "nacre.resume.start.");
  v1::Resume* const resume = request->generate.mutable_resume();
  resume->set_model_fingerprint(NeededText("model_fingerprint", &reader));
  resume->set_numerics_id(NeededText("numerics_id", &reader));
  v1::SamplingParams* const sampling = request->generate.mutable_sampling();
  if (const std::optional<uint64_t> seed = SeedOf(&reader)) {
    if (sampling->has_seed() && sampling->seed() != *seed) {
      reader.Fail(BadRequest(absl::StrCat("seed is ", sampling->seed(),
                                          ", that of the answer is ", *seed),
                             "seed"));
    }
    sampling->set_seed(*seed);
  }
  if (const OrderedJson* const ids = Needed("prompt_token_ids", &reader)) {
    request->resumption.prompt = reader.Ids("prompt_token_ids", kMaxResumedIds);
    if (request->resumption.prompt.empty()) {
      reader.FailField("prompt_token_ids", *ids, "the answer's");
    }
  }
  RefuseUnknown(&reader, outer);
}

void ReadChoice(const OrderedJson& object, size_t index, FieldReader* outer,
                v1::Resume::Choice* choice) {
  const std::string name = absl::StrCat("choices[", index, "]");
  if (!object.is_object()) {
    return outer->FailField(name.c_str(), object, "an object");
  }
  FieldReader reader(object, absl::StrCat("nacre.resume.", name, "."));
  for (const uint32_t id : reader.Ids("token_ids", kMaxResumedIds)) {
    choice->add_token_ids(id);
  }
  choice->set_done(reader.BoolOr("done", false));
  RefuseUnknown(&reader, outer);
}

void ReadChoices(FieldReader* reader, v1::Resume* resume) {
  const OrderedJson* const choices = Needed("choices", reader);
  if (choices == nullptr) return;
  if (!choices->is_array()) {
    return reader->FailField("choices", *choices, "a list");
  }
  bool any = false;
  for (size_t i = 0; i < choices->size() && !reader->error(); ++i) {
    v1::Resume::Choice* const choice = resume->add_choices();
    ReadChoice((*choices)[i], i, reader, choice);
    any = any || choice->done() || !choice->token_ids().empty();
  }
  if (!any) {
    reader->Fail(BadRequest(
        "nacre.resume.choices have no token: send the request anew", "nacre"));
  }
}

}  // namespace

void ReadResume(FieldReader* nacre, ApiRequest* request) {
  request->resumption.offered = nacre->BoolOr("resumable", false);
  const OrderedJson* const object = nacre->Find("resume");
  if (object == nullptr) return;
  if (!object->is_object()) {
    return nacre->FailField("resume", *object, "an object");
  }
  FieldReader reader(*object, "nacre.resume.");
  ReadStart(&reader, request);
  ReadChoices(&reader, request->generate.mutable_resume());
  RefuseUnknown(&reader, nacre);
}

void CheckResume(FieldReader* reader, ApiRequest* request) {
  // Its events have their tokens.
  request->answer.return_token_ids =
      request->answer.return_token_ids || request->resumption.offered;
  const bool resumes = request->generate.has_resume();
  if (!resumes && !request->resumption.offered) return;
  const char* const name = resumes ? "nacre.resume" : "nacre.resumable";
  const auto fail = [&](absl::string_view why) {
    reader->Fail(BadRequest(absl::StrCat(name, " is set ", why), "nacre"));
  };
  if (!request->answer.stream) fail("without stream");
  if (request->prompts.size() > 1) fail("with more than one prompt");
  if (!IsRepeatable(request->generate)) {
    fail(
        "with verification ratio above temperature 0: its tokens depend on "
        "what was drafted");
  }
  if (!resumes) return;
  // Nothing but an echo reads it.
  if (request->prompts.empty()) {
    request->prompts.emplace_back(request->resumption.prompt);
  }
  const v1::Resume& resume = request->generate.resume();
  if (resume.choices_size() != request->n) {
    reader->Fail(
        BadRequest(absl::StrCat("nacre.resume has ", resume.choices_size(),
                                " choices, expected n, ", request->n),
                   "nacre"));
  }
  // What is said of the prompt came with the first tokens.
  if (std::all_of(resume.choices().begin(), resume.choices().end(),
                  [](const v1::Resume::Choice& choice) {
                    return choice.done() || !choice.token_ids().empty();
                  })) {
    request->generate.mutable_output()->clear_prompt_logprobs();
  }
}

OrderedJson StartJson(const v1::Start& start,
                      const std::vector<uint32_t>& prompt_ids) {
  return {{"seed", absl::StrCat(start.seed())},
          {"model_fingerprint", start.model_fingerprint()},
          {"numerics_id", start.numerics_id()},
          {"prompt_token_ids", prompt_ids}};
}

}  // namespace nacre::gateway
