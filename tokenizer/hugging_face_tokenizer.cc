#include "tokenizer/hugging_face_tokenizer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/configured_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/limited_ids.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

using NormalizedPieces = absl::flat_hash_map<int32_t, std::string>;

// Begin and end of each range in the segment, from the segment's begin on.
std::vector<size_t> MarksOf(absl::Span<const TextRange> ranges,
                            const TextSegment& segment) {
  std::vector<size_t> marks;
  auto range = std::upper_bound(
      ranges.begin(), ranges.end(), segment.begin,
      [](size_t at, const TextRange& other) { return at < other.end; });
  for (; range != ranges.end() && range->begin < segment.end; ++range) {
    marks.push_back(std::max(range->begin, segment.begin) - segment.begin);
    marks.push_back(std::min(range->end, segment.end) - segment.begin);
  }
  return marks;
}

std::vector<TextRange> RangesBetween(const std::vector<size_t>& marks) {
  std::vector<TextRange> ranges;
  for (size_t i = 0; i + 1 < marks.size(); i += 2) {
    if (marks[i] < marks[i + 1]) ranges.push_back({marks[i], marks[i + 1]});
  }
  return ranges;
}

// "added_tokens", which get their pieces.
absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(
    const Json& json, std::vector<std::string>* pieces) {
  std::vector<AddedToken> tokens;
  const Json* const list = FindField(json, "added_tokens");
  if (list == nullptr) return tokens;
  if (!list->is_array()) return TypeError("added_tokens", *list, "an array");
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string path = absl::StrCat("added_tokens[", i, "]");
    NACRE_ASSIGN_OR_RETURN(AddedToken token, ParseAddedToken((*list)[i], path));
    const Json* const id = FindField((*list)[i], "id");
    if (id == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(path, ".id is missing"));
    }
    NACRE_ASSIGN_OR_RETURN(token.id, TokenId(*id, absl::StrCat(path, ".id")));
    if (static_cast<size_t>(token.id) >= pieces->size()) {
      pieces->resize(token.id + 1);
    }
    std::string& piece = (*pieces)[token.id];
    if (!piece.empty() && piece != token.content) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, " '", token.content.substr(0, 64), "' has id ", token.id,
          ", which '", piece.substr(0, 64), "' has too"));
    }
    piece = token.content;
    token.path = path;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

class HuggingFaceTokenizer : public Tokenizer {
 public:
  // The model merges `pieces` by rank or, where there are none, is in `json`.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(
      const Json& json, std::vector<std::string> pieces,
      const TokenizerConfig& config);

  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text, EncodeOptions options) const override;
  std::unique_ptr<IncrementalDecoder> NewDecoder(
      bool skip_special_tokens) const override;

 private:
  // Those of the file and of the config; gives the pieces theirs.
  absl::Status SetAddedTokens(const Json& json, const TokenizerConfig& config,
                              std::vector<std::string>* pieces);
  absl::Status SetBosAndEos(const TokenizerConfig& config);
  absl::Status CheckTemplateIds() const;

  // Adds the ids of a segment of `text`, one without raw added tokens.
  absl::Status EncodeSegment(absl::string_view text, const TextSegment& segment,
                             const EncodeOptions& options, StepBudget* steps,
                             LimitedIds* ids) const;

  AddedTokens added_tokens_;
  // Contents of added tokens that the normalizer changes, by id.
  NormalizedPieces normalized_pieces_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  PostProcessor post_processor_;
  Decoder decoder_;
};

// Feeds the pieces of ids to a chain of stages.
class ChainDecoder : public IncrementalDecoder {
 public:
  ChainDecoder(const Tokenizer* tokenizer, const NormalizedPieces* normalized,
               const Decoder& decoder, bool skip_special_tokens)
      : tokenizer_(tokenizer),
        normalized_(normalized),
        skip_special_tokens_(skip_special_tokens),
        chain_(decoder.NewChain(&output_)) {}
  // The chain holds the address of output_.
  ChainDecoder(const ChainDecoder&) = delete;
  ChainDecoder& operator=(const ChainDecoder&) = delete;

  void Append(int32_t id, std::string* text) override {
    absl::string_view piece = tokenizer_->IdToPiece(id);
    if (piece.empty()) return;
    const auto normalized = normalized_->find(id);
    if (normalized != normalized_->end()) {
      // Not even left out if special: `tokenizers` looks for this text among
      // those of the special tokens.
      piece = normalized->second;
    } else if (skip_special_tokens_ && tokenizer_->IsSpecial(id)) {
      return;
    }
    output_ = text;
    chain_->Write(piece, /*ends_token=*/true);
  }

  void Finish(std::string* text) override {
    output_ = text;
    chain_->Finish();
  }

 private:
  const Tokenizer* tokenizer_;
  const NormalizedPieces* normalized_;
  bool skip_special_tokens_;
  std::string* output_ = nullptr;
  std::unique_ptr<DecoderStage> chain_;
};

absl::StatusOr<std::unique_ptr<Tokenizer>> HuggingFaceTokenizer::Create(
    const Json& json, std::vector<std::string> pieces,
    const TokenizerConfig& config) {
  auto tokenizer = std::make_unique<HuggingFaceTokenizer>();
  NACRE_ASSIGN_OR_RETURN(tokenizer->normalizer_,
                         Normalizer::Parse(FindField(json, "normalizer")));
  NACRE_ASSIGN_OR_RETURN(tokenizer->pre_tokenizer_,
                         PreTokenizer::Parse(FindField(json, "pre_tokenizer")));
  NACRE_ASSIGN_OR_RETURN(
      tokenizer->post_processor_,
      PostProcessor::Parse(FindField(json, "post_processor")));
  NACRE_ASSIGN_OR_RETURN(tokenizer->decoder_,
                         Decoder::Parse(FindField(json, "decoder")));
  if (!pieces.empty()) {
    tokenizer->model_ = BpeModel::OfRanks(pieces);
  } else {
    const Json* const model = FindField(json, "model");
    if (model == nullptr) {
      return absl::InvalidArgumentError("model is missing");
    }
    NACRE_ASSIGN_OR_RETURN(tokenizer->model_, BpeModel::Parse(*model, &pieces));
  }
  NACRE_RETURN_IF_ERROR(tokenizer->SetAddedTokens(json, config, &pieces));
  if (pieces.empty()) {
    return absl::InvalidArgumentError("the vocabulary is empty");
  }
  tokenizer->vocabulary_ = Vocabulary(std::move(pieces));
  tokenizer->special_.resize(tokenizer->vocab_size());
  NACRE_RETURN_IF_ERROR(tokenizer->SetBosAndEos(config));
  NACRE_RETURN_IF_ERROR(tokenizer->CheckTemplateIds());
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

absl::Status HuggingFaceTokenizer::SetAddedTokens(
    const Json& json, const TokenizerConfig& config,
    std::vector<std::string>* pieces) {
  NACRE_ASSIGN_OR_RETURN(std::vector<AddedToken> tokens,
                         ParseAddedTokens(json, pieces));
  NACRE_ASSIGN_OR_RETURN(
      tokens, WithConfiguredTokens(std::move(tokens), *pieces, config,
                                   ToldIds::kFollow));
  for (const AddedToken& token : tokens) {
    if (static_cast<size_t>(token.id) >= pieces->size()) {
      pieces->resize(token.id + 1);
    }
    (*pieces)[token.id] = token.content;
    if (static_cast<size_t>(token.id) >= special_.size()) {
      special_.resize(token.id + 1);
    }
    special_[token.id] = token.special;
    // The normalizer must be able to treat the token's own text.
    if (!token.normalized) continue;
    NACRE_ASSIGN_OR_RETURN(std::string normalized,
                           normalizer_.Normalize(token.content));
    if (normalized.size() > kMaxTokenBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          token.path, " '", CutUtf8(token.content, 64), "' has ",
          normalized.size(), " bytes when normalized, the limit is ",
          kMaxTokenBytes));
    }
    if (normalized != token.content) {
      normalized_pieces_[token.id] = std::move(normalized);
    }
  }
  added_tokens_ =
      AddedTokens(std::move(tokens), [this](absl::string_view content) {
        return normalizer_.Normalize(content).value_or("");
      });
  return absl::OkStatus();
}

absl::Status HuggingFaceTokenizer::SetBosAndEos(const TokenizerConfig& config) {
  const auto resolve = [&](const NamedToken& named, const char* key,
                           std::optional<int32_t>* id) -> absl::Status {
    if (!named.content) return absl::OkStatus();
    *id = PieceToId(*named.content);
    if (id->has_value()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "tokenizer_config.", key, " '", named.content->substr(0, 64),
        "' is not in the vocabulary"));
  };
  NACRE_RETURN_IF_ERROR(resolve(config.bos_token, "bos_token", &bos_id_));
  NACRE_RETURN_IF_ERROR(resolve(config.eos_token, "eos_token", &eos_id_));
  // Without a config the template is the only one to tell.
  std::vector<int32_t>& prefix = post_processor_.prefix;
  std::vector<int32_t>& suffix = post_processor_.suffix;
  if (!config.bos_token.mentioned && prefix.size() == 1) bos_id_ = prefix[0];
  if (!config.eos_token.mentioned && suffix.size() == 1) eos_id_ = suffix[0];

  const auto override = [](std::optional<bool> add, const char* key,
                           std::optional<int32_t> id,
                           std::vector<int32_t>* ids) -> absl::Status {
    if (!add) return absl::OkStatus();
    if (*add && !id) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tokenizer_config.", key, " is true, but there is no such token"));
    }
    ids->clear();
    if (*add) ids->push_back(*id);
    return absl::OkStatus();
  };
  NACRE_RETURN_IF_ERROR(
      override(config.add_bos_token, "add_bos_token", bos_id_, &prefix));
  return override(config.add_eos_token, "add_eos_token", eos_id_, &suffix);
}

absl::Status HuggingFaceTokenizer::CheckTemplateIds() const {
  for (const auto* ids : {&post_processor_.prefix, &post_processor_.suffix}) {
    for (const int32_t id : *ids) {
      if (!IdToPiece(id).empty()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("post_processor adds token id ", id,
                       ", which the vocabulary of ", vocab_size(), " lacks"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> HuggingFaceTokenizer::Encode(
    absl::string_view text, EncodeOptions options) const {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "text has ", text.size(), " bytes, the limit is ", kMaxTextBytes));
  }
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "text is not valid UTF-8 at byte ", invalid, " of ", text.size()));
  }
  LimitedIds ids(options.max_ids);
  StepBudget steps(text.size());
  if (options.add_special_tokens) {
    NACRE_RETURN_IF_ERROR(ids.Add(post_processor_.prefix));
  }
  for (const TextSegment& segment : added_tokens_.Split(
           text, AddedTokens::Pass::kRaw, options.parse_special_tokens,
           ids.room(), options.user_text)) {
    if (segment.id >= 0) {
      NACRE_RETURN_IF_ERROR(ids.Add(segment.id));
      continue;
    }
    NACRE_RETURN_IF_ERROR(EncodeSegment(text, segment, options, &steps, &ids));
  }
  if (options.add_special_tokens) {
    NACRE_RETURN_IF_ERROR(ids.Add(post_processor_.suffix));
  }
  return ids.Take();
}

absl::Status HuggingFaceTokenizer::EncodeSegment(absl::string_view text,
                                                 const TextSegment& raw,
                                                 const EncodeOptions& options,
                                                 StepBudget* steps,
                                                 LimitedIds* ids) const {
  text = text.substr(raw.begin, raw.end - raw.begin);
  size_t head = 0;
  if (raw.begin == 0 && !text.empty()) (void)DecodeUtf8(text, &head);
  // Ends of the user's ranges, in the segment and then in what it becomes.
  std::vector<size_t> marks;
  if (added_tokens_.LooksFor(AddedTokens::Pass::kNormalized)) {
    marks = MarksOf(options.user_text, raw);
  }
  NACRE_ASSIGN_OR_RETURN(
      const std::string normalized,
      normalizer_.Normalize(text, &head, absl::MakeSpan(marks), steps));
  for (const TextSegment& segment : added_tokens_.Split(
           normalized, AddedTokens::Pass::kNormalized,
           options.parse_special_tokens, ids->room(), RangesBetween(marks))) {
    if (segment.id >= 0) {
      NACRE_RETURN_IF_ERROR(ids->Add(segment.id));
      continue;
    }
    Word word{
        normalized.substr(segment.begin, segment.end - segment.begin),
        std::max(segment.begin, std::min(segment.end, head)) - segment.begin};
    NACRE_RETURN_IF_ERROR(pre_tokenizer_.Apply(
        std::move(word),
        [&](const Word& part) { return model_.Encode(part.text, ids); },
        steps));
  }
  return absl::OkStatus();
}

std::unique_ptr<IncrementalDecoder> HuggingFaceTokenizer::NewDecoder(
    bool skip_special_tokens) const {
  return std::make_unique<ChainDecoder>(this, &normalized_pieces_, decoder_,
                                        skip_special_tokens);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseHuggingFaceTokenizer(
    absl::string_view text, const TokenizerConfig& config) {
  NACRE_ASSIGN_OR_RETURN(const Json json,
                         ParseJsonObject(text, "tokenizer.json"));
  return HuggingFaceTokenizer::Create(json, {}, config);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeRankedTokenizer(
    const Json& json, std::vector<std::string> pieces,
    const TokenizerConfig& config) {
  return HuggingFaceTokenizer::Create(json, std::move(pieces), config);
}

}  // namespace nacre::tokenizer
