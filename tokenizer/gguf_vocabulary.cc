#include "tokenizer/gguf_vocabulary.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/json_fields.h"
#include "common/status_macros.h"
#include "tokenizer/known_patterns.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace nacre::tokenizer {

struct GgufPreTokenizer {
  absl::string_view name;
  // What is split off one after the other; none: what ByteLevel itself does.
  absl::string_view patterns[4];
  bool splits_digits = false;  // each is a word
  bool is_nfc = false;
  bool ignores_merges = false;  // a word that is a piece is that piece
  bool adds_bos = false;
};

namespace {

constexpr char kTokensKey[] = "tokenizer.ggml.tokens";

// Of the tokenizer.json files of the models that have this name.
constexpr absl::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?)"
    R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr GgufPreTokenizer kPreTokenizers[] = {
    {.name = "llama-bpe",
     .patterns = {kLlama3Pattern},
     .ignores_merges = true,
     .adds_bos = true},
    {.name = "llama-v3",
     .patterns = {kLlama3Pattern},
     .ignores_merges = true,
     .adds_bos = true},
    {.name = "llama3",
     .patterns = {kLlama3Pattern},
     .ignores_merges = true,
     .adds_bos = true},
    {.name = "qwen2", .patterns = {kQwen2Pattern}, .is_nfc = true},
    {.name = "deepseek-r1-qwen", .patterns = {kQwen2Pattern}},
    {.name = "tekken",
     .patterns = {kTekkenPattern},
     .ignores_merges = true,
     .adds_bos = true},
    {.name = "deepseek-coder",
     .patterns = {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
                  "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+"},
     .splits_digits = true},
    {.name = "gpt-2"},
    {.name = "smollm", .splits_digits = true},
    {.name = "starcoder", .splits_digits = true},
};

// The converter gives ids without a token a name of this form.
bool IsPadding(absl::string_view token, PieceType type) {
  return type == PieceType::kUnused && absl::StartsWith(token, "[PAD");
}

Json PreTokenizerJson(const GgufPreTokenizer& pre_tokenizer) {
  Json steps = Json::array();
  for (const absl::string_view pattern : pre_tokenizer.patterns) {
    if (pattern.empty()) continue;
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", std::string(pattern)}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  const bool has_patterns = !steps.empty();
  if (pre_tokenizer.splits_digits) {
    steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  }
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"use_regex", !has_patterns}});
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

// Fields of protobuf's wire format.
class ProtoText {
 public:
  void AddVarint(int field, uint64_t value) {
    Varint(static_cast<uint64_t>(field) << 3);
    Varint(value);
  }
  void AddFloat(int field, float value) {
    Varint(static_cast<uint64_t>(field) << 3 | 5);
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    text_.append(bytes, sizeof(value));
  }
  void AddBytes(int field, absl::string_view bytes) {
    Varint(static_cast<uint64_t>(field) << 3 | 2);
    Varint(bytes.size());
    absl::StrAppend(&text_, bytes);
  }
  const std::string& text() const { return text_; }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      text_.push_back(static_cast<char>(value | 0x80));
    }
    text_.push_back(static_cast<char>(value));
  }

  std::string text_;
};

}  // namespace

absl::StatusOr<GgufVocabulary> ReadGgufVocabulary(
    const gguf::Metadata& metadata) {
  GgufVocabulary vocabulary;
  NACRE_ASSIGN_OR_RETURN(vocabulary.tokens, metadata.Strings(kTokensKey));
  if (vocabulary.tokens.size() > kMaxVocabularySize) {
    return absl::InvalidArgumentError(
        absl::StrCat(kTokensKey, " has ", vocabulary.tokens.size(),
                     " tokens, the limit is ", kMaxVocabularySize));
  }
  constexpr char kTypesKey[] = "tokenizer.ggml.token_type";
  NACRE_ASSIGN_OR_RETURN(const std::vector<int32_t> types,
                         metadata.Integers(kTypesKey));
  if (types.size() != vocabulary.tokens.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kTypesKey, " has ", types.size(), " elements, ",
                     kTokensKey, " has ", vocabulary.tokens.size()));
  }
  for (size_t id = 0; id < types.size(); ++id) {
    if (types[id] < 1 || types[id] > 6) {
      return absl::InvalidArgumentError(
          absl::StrCat(kTypesKey, "[", id, "] is ", types[id],
                       ", the known types are 1 to 6"));
    }
    vocabulary.types.push_back(static_cast<PieceType>(types[id]));
  }
  while (!vocabulary.tokens.empty() &&
         IsPadding(vocabulary.tokens.back(), vocabulary.types.back())) {
    vocabulary.tokens.pop_back();
    vocabulary.types.pop_back();
  }
  return vocabulary;
}

absl::StatusOr<const GgufPreTokenizer*> FindGgufPreTokenizer(
    absl::string_view name) {
  for (const GgufPreTokenizer& known : kPreTokenizers) {
    if (known.name == name) return &known;
  }
  return absl::UnimplementedError(absl::StrCat(
      "tokenizer.ggml.pre ", gguf::Shown(name),
      " is not supported; supported: ",
      absl::StrJoin(kPreTokenizers, ", ",
                    [](std::string* out, const GgufPreTokenizer& known) {
                      absl::StrAppend(out, "\"", known.name, "\"");
                    })));
}

bool AddsBos(const GgufPreTokenizer& pre_tokenizer) {
  return pre_tokenizer.adds_bos;
}

absl::StatusOr<std::string> BpeTokenizerJson(
    const GgufVocabulary& vocabulary,
    const std::vector<absl::string_view>& merges,
    const GgufPreTokenizer& pre_tokenizer) {
  Json vocab = Json::object();
  Json added = Json::array();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string token(vocabulary.tokens[id]);
    const PieceType type = vocabulary.types[id];
    if (FindInvalidUtf8(token) != absl::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          kTokensKey, "[", id, "] is ", gguf::Shown(token), ", no UTF-8"));
    }
    if (type == PieceType::kUnused) continue;
    if (type != PieceType::kControl && type != PieceType::kUserDefined) {
      if (!vocab.emplace(token, id).second) {
        return absl::InvalidArgumentError(
            absl::StrCat(kTokensKey, "[", id, "] is ", gguf::Shown(token),
                         ", which is there twice"));
      }
      continue;
    }
    added.push_back({{"id", id},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", type == PieceType::kControl}});
  }
  Json merge_list = Json::array();
  for (const absl::string_view merge : merges) {
    if (FindInvalidUtf8(merge) != absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.merges[", merge_list.size(), "] is ",
                       gguf::Shown(merge), ", no UTF-8"));
    }
    merge_list.push_back(std::string(merge));
  }
  Json json = {{"added_tokens", std::move(added)},
               {"pre_tokenizer", PreTokenizerJson(pre_tokenizer)},
               {"decoder", {{"type", "ByteLevel"}}},
               {"model",
                {{"type", "BPE"},
                 {"vocab", std::move(vocab)},
                 {"merges", std::move(merge_list)},
                 {"ignore_merges", pre_tokenizer.ignores_merges}}}};
  if (pre_tokenizer.is_nfc) json["normalizer"] = {{"type", "NFC"}};
  return json.dump();
}

absl::StatusOr<std::string> SentencePieceModelBytes(
    const GgufVocabulary& vocabulary, const gguf::Metadata& metadata) {
  constexpr char kScoresKey[] = "tokenizer.ggml.scores";
  NACRE_ASSIGN_OR_RETURN(const std::vector<float> scores,
                         metadata.Floats(kScoresKey));
  if (scores.size() < vocabulary.tokens.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kScoresKey, " has ", scores.size(), " elements, ",
                     kTokensKey, " has ", vocabulary.tokens.size()));
  }
  ProtoText model;
  bool has_bytes = false;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    has_bytes |= vocabulary.types[id] == PieceType::kByte;
    ProtoText piece;
    piece.AddBytes(1, vocabulary.tokens[id]);
    piece.AddFloat(2, scores[id]);
    piece.AddVarint(3, static_cast<uint64_t>(vocabulary.types[id]));
    model.AddBytes(1, piece.text());
  }
  ProtoText trainer;
  trainer.AddVarint(3, 2);  // model_type: BPE
  trainer.AddVarint(35, has_bytes ? 1 : 0);
  model.AddBytes(2, trainer.text());
  NACRE_ASSIGN_OR_RETURN(
      const bool adds_prefix,
      metadata.BoolOr("tokenizer.ggml.add_space_prefix", true));
  NACRE_ASSIGN_OR_RETURN(
      const bool removes_spaces,
      metadata.BoolOr("tokenizer.ggml.remove_extra_whitespaces", false));
  ProtoText normalizer;
  normalizer.AddVarint(3, adds_prefix ? 1 : 0);
  normalizer.AddVarint(4, removes_spaces ? 1 : 0);
  normalizer.AddVarint(5, 1);  // escape_whitespaces
  model.AddBytes(3, normalizer.text());
  return model.text();
}

}  // namespace nacre::tokenizer
