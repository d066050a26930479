#include "tokenizer/sentencepiece_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status_macros.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_merge.h"
#include "tokenizer/configured_tokens.h"
#include "tokenizer/limited_ids.h"
#include "tokenizer/piece_cover.h"
#include "tokenizer/sentencepiece_decoder.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/sentencepiece_normalizer.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

class SentencePieceTokenizer : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(
      absl::string_view bytes, const TokenizerConfig& config);

  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text, EncodeOptions options) const override;

  std::unique_ptr<IncrementalDecoder> NewDecoder(
      bool skip_special_tokens) const override {
    return std::make_unique<SentencePieceDecoder>(&decoding_,
                                                  skip_special_tokens);
  }

 private:
  absl::Status AddConfiguredTokens(TokenizerConfig config);
  absl::Status SetBosAndEos(const TokenizerConfig& config);
  void BuildMergeable();
  void BuildDecoding();

  // Adds the ids of normalized text.
  absl::Status EncodeNormalized(absl::string_view text, LimitedIds* ids) const;
  // Splits `text` into characters and user-defined symbols.
  std::vector<Symbol> SplitSymbols(absl::string_view text) const;

  SentencePieceModel model_;
  SentencePieceNormalizer normalizer_;
  AddedTokens special_tokens_;
  PrefixTrie user_defined_;
  // Pieces that text can become: normal, user-defined and unused ones. Views
  // into model_.pieces.
  absl::flat_hash_map<absl::string_view, int32_t> mergeable_;
  size_t longest_mergeable_ = 0;  // bytes
  PieceCover cover_;              // of the same pieces
  bool has_unused_ = false;
  SentencePieceDecoding decoding_;
  bool legacy_ = true;
  bool add_bos_ = false;
  bool add_eos_ = false;
};

absl::StatusOr<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::Create(
    absl::string_view bytes, const TokenizerConfig& config) {
  auto tokenizer = std::make_unique<SentencePieceTokenizer>();
  NACRE_ASSIGN_OR_RETURN(tokenizer->model_, ParseSentencePieceModel(bytes));
  NACRE_ASSIGN_OR_RETURN(
      tokenizer->normalizer_,
      SentencePieceNormalizer::Create(tokenizer->model_.normalization));
  tokenizer->legacy_ = config.legacy;
  NACRE_RETURN_IF_ERROR(tokenizer->AddConfiguredTokens(config));
  NACRE_RETURN_IF_ERROR(tokenizer->SetBosAndEos(config));
  tokenizer->BuildMergeable();
  tokenizer->BuildDecoding();
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

// Control and unknown pieces can be written in the text, and so can the tokens
// that the config adds, which may lie past the model's last id.
absl::Status SentencePieceTokenizer::AddConfiguredTokens(
    TokenizerConfig config) {
  std::vector<std::string> pieces;
  std::vector<bool> reserved;
  std::vector<AddedToken> own;
  absl::flat_hash_set<absl::string_view> user_defined;
  for (const SentencePiece& piece : model_.pieces) {
    const int32_t id = static_cast<int32_t>(pieces.size());
    const bool is_special =
        piece.type == PieceType::kControl || piece.type == PieceType::kUnknown;
    pieces.push_back(piece.text);
    special_.push_back(is_special);
    reserved.push_back(is_special || piece.type == PieceType::kByte);
    if (piece.type == PieceType::kUserDefined) user_defined.insert(piece.text);
    // Invalid UTF-8 cannot be met in a text, but a model file may hold it.
    if (!is_special || FindInvalidUtf8(piece.text) != absl::string_view::npos) {
      continue;
    }
    AddedToken token;
    token.id = id;
    token.content = piece.text;
    token.special = true;
    own.push_back(std::move(token));
  }
  // The model finds these by itself, as `transformers` 5 leaves it to do.
  std::erase_if(config.listed_tokens, [&](const AddedToken& token) {
    return user_defined.contains(token.content);
  });
  const size_t num_own = own.size();
  NACRE_ASSIGN_OR_RETURN(
      std::vector<AddedToken> tokens,
      WithConfiguredTokens(std::move(own), pieces, config, ToldIds::kAsTold));
  // Of equal contents the model's is found.
  std::rotate(tokens.begin(), tokens.begin() + num_own, tokens.end());
  for (AddedToken& token : tokens) {
    // There is no normalized pass here: the model normalizes as it encodes.
    token.normalized = false;
    if (static_cast<size_t>(token.id) >= pieces.size()) {
      pieces.resize(token.id + 1);
      special_.resize(token.id + 1);
      reserved.resize(token.id + 1);
    }
    if (pieces[token.id].empty()) pieces[token.id] = token.content;
    special_[token.id] = special_[token.id] || token.special;
    token.special = special_[token.id];
  }
  vocabulary_ = Vocabulary(std::move(pieces), reserved);
  special_tokens_ = AddedTokens(std::move(tokens), [](absl::string_view text) {
    return std::string(text);
  });
  return absl::OkStatus();
}

absl::Status SentencePieceTokenizer::SetBosAndEos(
    const TokenizerConfig& config) {
  const auto resolve = [&](const NamedToken& named, const char* key,
                           const std::string& model_piece,
                           std::optional<int32_t>* id) -> absl::Status {
    if (named.mentioned) {
      if (!named.content) return absl::OkStatus();
      *id = PieceToId(*named.content);
      if (id->has_value()) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer_config.", key, " '", *named.content,
                       "' is not in the vocabulary"));
    }
    // The library, too, takes the piece for BOS only if it is a control piece.
    const std::optional<int32_t> found = PieceToId(model_piece);
    if (found && static_cast<size_t>(*found) < model_.pieces.size() &&
        model_.pieces[*found].type == PieceType::kControl) {
      *id = found;
    }
    return absl::OkStatus();
  };
  NACRE_RETURN_IF_ERROR(
      resolve(config.bos_token, "bos_token", model_.bos_piece, &bos_id_));
  NACRE_RETURN_IF_ERROR(
      resolve(config.eos_token, "eos_token", model_.eos_piece, &eos_id_));
  add_bos_ = config.add_bos_token.value_or(bos_id_.has_value());
  add_eos_ = config.add_eos_token.value_or(false);
  if (add_bos_ && !bos_id_) {
    return absl::InvalidArgumentError(
        "tokenizer_config.add_bos_token is true, but there is no BOS token");
  }
  if (add_eos_ && !eos_id_) {
    return absl::InvalidArgumentError(
        "tokenizer_config.add_eos_token is true, but there is no EOS token");
  }
  return absl::OkStatus();
}

void SentencePieceTokenizer::BuildMergeable() {
  // Without bytes a run of unknown pieces is one token.
  cover_ = PieceCover(model_.byte_fallback ? PieceCover::Unknown::kTokenEach
                                           : PieceCover::Unknown::kFree);
  for (size_t i = 0; i < model_.pieces.size(); ++i) {
    const SentencePiece& piece = model_.pieces[i];
    const int32_t id = static_cast<int32_t>(i);
    const bool user_defined = piece.type == PieceType::kUserDefined;
    has_unused_ |= piece.type == PieceType::kUnused;
    if (user_defined) user_defined_.Add(piece.text, id);
    if (user_defined || piece.type == PieceType::kNormal ||
        piece.type == PieceType::kUnused) {
      mergeable_.emplace(piece.text, id);
      longest_mergeable_ = std::max(longest_mergeable_, piece.text.size());
      cover_.Add(piece.text);
    }
  }
}

void SentencePieceTokenizer::BuildDecoding() {
  using Kind = SentencePieceDecoding::Kind;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    SentencePieceDecoding::Piece piece;
    piece.text = std::string(IdToPiece(id));
    const bool in_model = static_cast<size_t>(id) < model_.pieces.size();
    if (in_model && model_.pieces[id].type == PieceType::kByte) {
      piece.kind = Kind::kByte;
      piece.byte = static_cast<uint8_t>(BytePieceValue(piece.text));
    } else if (id == model_.unk_id) {
      piece.kind = Kind::kUnknown;
    } else if (special_[id]) {
      piece.kind = Kind::kSpecial;
    } else if (in_model) {
      piece.starts_with_space_symbol =
          absl::StartsWith(piece.text, kSpaceSymbol);
      piece.text = absl::StrReplaceAll(piece.text, {{kSpaceSymbol, " "}});
    }
    decoding_.pieces.push_back(std::move(piece));
  }
  const SentencePieceNormalization& normalization = model_.normalization;
  decoding_.unk_surface = model_.unk_surface;
  decoding_.strip_every_leading_space = normalization.remove_extra_whitespaces;
  decoding_.strip_leading_space =
      normalization.add_dummy_prefix || normalization.remove_extra_whitespaces;
}

std::vector<Symbol> SentencePieceTokenizer::SplitSymbols(
    absl::string_view text) const {
  std::vector<Symbol> symbols;
  symbols.reserve(text.size());
  for (size_t begin = 0; begin < text.size();) {
    Symbol symbol{};
    const absl::string_view rest = text.substr(begin);
    const PrefixTrie::Match match = user_defined_.LongestPrefix(rest);
    if (match.size > 0) {
      symbol.frozen = true;
      symbol.size = static_cast<uint32_t>(match.size);
    } else {
      const Utf8Prefix prefix = ScanUtf8(rest);
      symbol.size = prefix.state == Utf8State::kComplete
                        ? static_cast<uint32_t>(prefix.size)
                        : 1;
    }
    symbol.begin = static_cast<uint32_t>(begin);
    begin += symbol.size;
    symbols.push_back(symbol);
  }
  LinkSymbols(symbols);
  return symbols;
}

absl::Status SentencePieceTokenizer::EncodeNormalized(absl::string_view text,
                                                      LimitedIds* ids) const {
  // A token has a byte at least.
  if (text.size() > ids->room() && cover_.NeedsMore(text, ids->room())) {
    return ids->TooMany();
  }
  if (text.empty()) return absl::OkStatus();
  std::vector<Symbol> symbols = SplitSymbols(text);
  // Unused pieces take part in merges and are split again afterwards: piece to
  // the size of its left half.
  absl::flat_hash_map<absl::string_view, size_t> splits;
  MergeSymbols(
      symbols,
      [&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
        const size_t size = left.size + right.size;
        if (left.frozen || right.frozen || size > longest_mergeable_) {
          return std::nullopt;
        }
        const absl::string_view piece = text.substr(left.begin, size);
        const auto found = mergeable_.find(piece);
        if (found == mergeable_.end()) return std::nullopt;
        const SentencePiece& merged = model_.pieces[found->second];
        if (merged.type == PieceType::kUnused) splits[piece] = left.size;
        return Merge{-static_cast<double>(merged.score), found->second};
      });

  bool after_unknown = false;
  const auto emit = [&](absl::string_view piece) -> absl::Status {
    const int32_t id = PieceToId(piece).value_or(model_.unk_id);
    const bool unknown = id == model_.unk_id;
    if (unknown && model_.byte_fallback) {
      for (const char byte : piece) {
        NACRE_RETURN_IF_ERROR(
            ids->Add(model_.byte_to_id[static_cast<uint8_t>(byte)]));
      }
    } else if (!unknown || !after_unknown) {
      // A run of unknown pieces is one unknown token.
      NACRE_RETURN_IF_ERROR(ids->Add(id));
    }
    after_unknown = unknown;
    return absl::OkStatus();
  };
  std::vector<absl::string_view> pending;
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    pending.push_back(text.substr(symbols[i].begin, symbols[i].size));
    while (!pending.empty()) {
      const absl::string_view piece = pending.back();
      pending.pop_back();
      const auto split = has_unused_ ? splits.find(piece) : splits.end();
      if (split == splits.end()) {
        NACRE_RETURN_IF_ERROR(emit(piece));
      } else {
        pending.push_back(piece.substr(split->second));
        pending.push_back(piece.substr(0, split->second));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> SentencePieceTokenizer::Encode(
    absl::string_view text, EncodeOptions options) const {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "text has ", text.size(), " bytes, the limit is ", kMaxTextBytes));
  }
  LimitedIds ids(options.max_ids);
  if (options.add_special_tokens && add_bos_) {
    NACRE_RETURN_IF_ERROR(ids.Add(*bos_id_));
  }
  // Splitting looks at characters around a token: make them valid first.
  std::string valid;
  if (FindInvalidUtf8(text) != absl::string_view::npos) {
    if (!options.user_text.empty()) {
      return absl::InvalidArgumentError(
          "a text with marks of what a user wrote is no UTF-8");
    }
    Utf8Assembler assembler(Utf8Assembler::Replacement::kPerByte);
    assembler.Append(text, &valid);
    assembler.Finish(&valid);
    text = valid;
  }
  for (const TextSegment& segment : special_tokens_.Split(
           text, AddedTokens::Pass::kRaw, options.parse_special_tokens,
           ids.room(), options.user_text)) {
    if (segment.id >= 0) {
      NACRE_RETURN_IF_ERROR(ids.Add(segment.id));
      continue;
    }
    const bool dummy_prefix = legacy_ || segment.begin == 0;
    NACRE_ASSIGN_OR_RETURN(
        const std::string normalized,
        normalizer_.Normalize(
            text.substr(segment.begin, segment.end - segment.begin),
            user_defined_, dummy_prefix));
    NACRE_RETURN_IF_ERROR(EncodeNormalized(normalized, &ids));
  }
  if (options.add_special_tokens && add_eos_) {
    NACRE_RETURN_IF_ERROR(ids.Add(*eos_id_));
  }
  return ids.Take();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePieceTokenizer(
    absl::string_view model_bytes, const TokenizerConfig& config) {
  return SentencePieceTokenizer::Create(model_bytes, config);
}

}  // namespace nacre::tokenizer
