#include "tokenizer/decoder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tokenizer/decoder_stages.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

// A count of characters to strip.
absl::StatusOr<size_t> CountField(const Json& json, const char* key,
                                  const std::string& path) {
  constexpr uint64_t kLimit = 1024;
  const Json* const field = FindField(json, key);
  if (field == nullptr || !field->is_number_unsigned() ||
      field->get<uint64_t>() > kLimit) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ".", key, " is missing or no integer from 0 to ", kLimit));
  }
  return static_cast<size_t>(field->get<uint64_t>());
}

}  // namespace

absl::StatusOr<Decoder> Decoder::Parse(const Json* json) {
  Decoder decoder;
  if (json == nullptr) {
    decoder.steps_.push_back({});
    decoder.steps_.back().kind = Kind::kJoinWithSpaces;
    return decoder;
  }
  NACRE_RETURN_IF_ERROR(ForEachComponent(
      *json, "decoders", "decoder",
      [&decoder](const Json& component, const std::string& type,
                 const std::string& path) {
        return decoder.AddStep(component, type, path);
      }));
  return decoder;
}

absl::Status Decoder::AddStep(const Json& json, const std::string& type,
                              const std::string& path) {
  Step step{};
  if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Fuse") {
    step.kind = Kind::kFuse;
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    NACRE_ASSIGN_OR_RETURN(step.pattern, Pattern::Parse(json, path));
    NACRE_ASSIGN_OR_RETURN(step.content, StringField(json, "content", path));
    // Up to here and with this step, of one byte.
    growth_ *= std::max<size_t>(
        1,
        std::min(step.pattern.MostOfByte(step.content.size()), kMaxGrowth + 1));
    if (growth_ > kMaxGrowth) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " and the steps before it may make ", growth_,
                       " bytes or more of one, the limit is ", kMaxGrowth));
    }
  } else if (type == "Strip") {
    NACRE_ASSIGN_OR_RETURN(step, ParseStrip(json, path));
  } else if (type == "Metaspace") {
    NACRE_ASSIGN_OR_RETURN(step, ParseMetaspace(json, path));
  } else {
    return UnsupportedType(path, type);
  }
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<Decoder::Step> Decoder::ParseStrip(const Json& json,
                                                  const std::string& path) {
  Step step{};
  step.kind = Kind::kStrip;
  NACRE_ASSIGN_OR_RETURN(step.content, StringField(json, "content", path));
  if (step.content.empty() ||
      ScanUtf8(step.content).size != step.content.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ".content '",
                                                   step.content.substr(0, 64),
                                                   "' is not one character"));
  }
  NACRE_ASSIGN_OR_RETURN(step.start, CountField(json, "start", path));
  NACRE_ASSIGN_OR_RETURN(step.stop, CountField(json, "stop", path));
  return step;
}

absl::StatusOr<Decoder::Step> Decoder::ParseMetaspace(const Json& json,
                                                      const std::string& path) {
  Step step{};
  step.kind = Kind::kMetaspace;
  NACRE_ASSIGN_OR_RETURN(MetaspaceFields fields,
                         ParseMetaspaceFields(json, path));
  step.content = std::move(fields.replacement);
  step.drop_first = fields.prepend_scheme != "never";
  return step;
}

std::unique_ptr<DecoderStage> Decoder::NewStage(
    const Step& step, std::unique_ptr<DecoderStage> next) {
  switch (step.kind) {
    case Kind::kJoinWithSpaces:
      return std::make_unique<JoinStage>(std::move(next));
    case Kind::kByteLevel:
      return std::make_unique<ByteLevelStage>(std::move(next));
    case Kind::kByteFallback:
      return std::make_unique<ByteFallbackStage>(std::move(next));
    case Kind::kFuse:
      return std::make_unique<FuseStage>(std::move(next));
    case Kind::kReplace:
      return std::make_unique<ReplaceStage>(&step.pattern, step.content,
                                            std::move(next));
    case Kind::kStrip:
      return std::make_unique<StripStage>(step.content, step.start, step.stop,
                                          std::move(next));
    case Kind::kMetaspace:
      return std::make_unique<MetaspaceStage>(step.content, step.drop_first,
                                              std::move(next));
  }
  return next;
}

std::unique_ptr<DecoderStage> Decoder::NewChain(std::string** output) const {
  std::unique_ptr<DecoderStage> chain = std::make_unique<OutputStage>(output);
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    chain = NewStage(*step, std::move(chain));
  }
  return chain;
}

}  // namespace nacre::tokenizer
