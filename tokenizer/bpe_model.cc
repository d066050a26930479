#include "tokenizer/bpe_model.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {

absl::StatusOr<BpeModel> BpeModel::Parse(const Json& json,
                                         std::vector<std::string>* pieces) {
  NACRE_RETURN_IF_ERROR(CheckObject(json, "model"));
  NACRE_ASSIGN_OR_RETURN(const std::string type,
                         StringFieldOr(json, "type", "BPE", "model"));
  if (type != "BPE") return UnsupportedType("model", type);
  BpeModel model;
  NACRE_RETURN_IF_ERROR(model.ParseVocabulary(json, pieces));
  NACRE_RETURN_IF_ERROR(model.ParseOptions(json));
  NACRE_RETURN_IF_ERROR(model.ParseMerges(json));
  model.BuildCover();
  return model;
}

BpeModel BpeModel::OfRanks(const std::vector<std::string>& pieces) {
  BpeModel model;
  model.ignore_merges_ = true;
  model.ids_.reserve(pieces.size());
  for (size_t id = 0; id < pieces.size(); ++id) {
    model.ids_.emplace(pieces[id], static_cast<int32_t>(id));
  }
  for (size_t id = 0; id < pieces.size(); ++id) {
    const absl::string_view piece = pieces[id];
    for (size_t cut = ScanUtf8(piece).size; cut < piece.size();
         cut += ScanUtf8(piece.substr(cut)).size) {
      const auto left = model.ids_.find(piece.substr(0, cut));
      if (left == model.ids_.end()) continue;
      const auto right = model.ids_.find(piece.substr(cut));
      if (right == model.ids_.end()) continue;
      model.merges_[Pair(left->second, right->second)] = {
          static_cast<uint32_t>(id), static_cast<int32_t>(id)};
    }
  }
  model.BuildCover();
  return model;
}

absl::Status BpeModel::ParseVocabulary(const Json& json,
                                       std::vector<std::string>* pieces) {
  const Json* const vocab = FindField(json, "vocab");
  if (vocab == nullptr) {
    return absl::InvalidArgumentError("model.vocab is missing");
  }
  NACRE_RETURN_IF_ERROR(CheckObject(*vocab, "model.vocab"));
  ids_.reserve(vocab->size());
  for (const auto& [piece, value] : vocab->items()) {
    NACRE_ASSIGN_OR_RETURN(
        const int32_t id,
        TokenId(value,
                absl::StrCat("model.vocab['", piece.substr(0, 64), "']")));
    if (static_cast<size_t>(id) >= pieces->size()) pieces->resize(id + 1);
    if (piece.empty() || !(*pieces)[id].empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "model.vocab['", piece.substr(0, 64), "'] has id ", id,
          piece.empty() ? ", but is empty"
                        : absl::StrCat(", which '", (*pieces)[id].substr(0, 64),
                                       "' has too")));
    }
    (*pieces)[id] = piece;
    ids_.emplace(piece, id);
  }
  return absl::OkStatus();
}

absl::Status BpeModel::ParseOptions(const Json& json) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    NACRE_ASSIGN_OR_RETURN(const std::string affix,
                           StringFieldOr(json, key, "", "model"));
    if (!affix.empty()) {
      return absl::UnimplementedError(absl::StrCat(
          "model.", key, " '", affix.substr(0, 64), "' is not supported"));
    }
  }
  if (const Json* dropout = FindField(json, "dropout");
      dropout != nullptr && *dropout != 0) {
    return absl::UnimplementedError(absl::StrCat(
        "model.dropout ", dropout->dump(-1, ' ', true), " is not supported"));
  }
  NACRE_ASSIGN_OR_RETURN(fuse_unk_,
                         BoolFieldOr(json, "fuse_unk", false, "model"));
  NACRE_ASSIGN_OR_RETURN(ignore_merges_,
                         BoolFieldOr(json, "ignore_merges", false, "model"));
  NACRE_ASSIGN_OR_RETURN(const std::string unk_token,
                         StringFieldOr(json, "unk_token", "", "model"));
  if (!unk_token.empty()) {
    const auto unk = ids_.find(unk_token);
    if (unk == ids_.end()) {
      return absl::InvalidArgumentError(absl::StrCat("model.unk_token '",
                                                     unk_token.substr(0, 64),
                                                     "' is not in the vocab"));
    }
    unk_id_ = unk->second;
  }
  NACRE_ASSIGN_OR_RETURN(const bool byte_fallback,
                         BoolFieldOr(json, "byte_fallback", false, "model"));
  if (byte_fallback) {
    byte_ids_.assign(256, -1);
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = ids_.find(absl::StrFormat("<0x%02X>", byte));
      if (found != ids_.end()) byte_ids_[byte] = found->second;
    }
  }
  return absl::OkStatus();
}

absl::Status BpeModel::ParseMerges(const Json& json) {
  const Json* const merges = FindField(json, "merges");
  if (merges == nullptr) {
    return absl::InvalidArgumentError("model.merges is missing");
  }
  if (!merges->is_array()) {
    return TypeError("model.merges", *merges, "an array");
  }
  merges_.reserve(merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    const Json& merge = (*merges)[i];
    // "a b", or ["a", "b"] for pieces with spaces.
    if (merge.is_string()) {
      const absl::string_view text = merge.get_ref<const std::string&>();
      if (absl::StartsWith(text, "#version")) continue;
      const size_t space = text.find(' ');
      if (space == absl::string_view::npos ||
          text.find(' ', space + 1) != absl::string_view::npos) {
        return absl::InvalidArgumentError(
            absl::StrCat("model.merges[", i, "] '", text.substr(0, 64),
                         "' is no pair of pieces with one space between them"));
      }
      NACRE_RETURN_IF_ERROR(
          AddMerge(text.substr(0, space), text.substr(space + 1), i));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      NACRE_RETURN_IF_ERROR(AddMerge(merge[0].get_ref<const std::string&>(),
                                     merge[1].get_ref<const std::string&>(),
                                     i));
    } else {
      return TypeError(absl::StrCat("model.merges[", i, "]"), merge,
                       "a string or an array of two strings");
    }
  }
  return absl::OkStatus();
}

absl::Status BpeModel::AddMerge(absl::string_view left, absl::string_view right,
                                size_t index) {
  const std::string joined = absl::StrCat(left, right);
  const absl::string_view names[] = {left, right, joined};
  int32_t ids[3];
  for (int i = 0; i < 3; ++i) {
    const auto found = ids_.find(names[i]);
    if (found == ids_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.merges[", index, "] names the piece '",
                       names[i].substr(0, 64), "', which is not in the vocab"));
    }
    ids[i] = found->second;
  }
  // A pair that is listed twice has its last rank, as in `tokenizers`.
  merges_[Pair(ids[0], ids[1])] = {static_cast<uint32_t>(index), ids[2]};
  return absl::OkStatus();
}

void BpeModel::BuildCover() {
  const bool all_bytes =
      !byte_ids_.empty() &&
      std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end();
  may_drop_ = !all_bytes && !unk_id_;
  absl::flat_hash_set<int32_t> stand_ins(byte_ids_.begin(), byte_ids_.end());
  if (unk_id_) stand_ins.insert(*unk_id_);
  for (const auto& [pair, merge] : merges_) {
    if (stand_ins.contains(static_cast<int32_t>(pair >> 32)) ||
        stand_ins.contains(static_cast<int32_t>(pair & 0xFFFFFFFF))) {
      return;
    }
  }
  cover_.emplace(all_bytes || (unk_id_ && !fuse_unk_)
                     ? PieceCover::Unknown::kTokenEach
                     : PieceCover::Unknown::kFree);
  for (const auto& [piece, id] : ids_) cover_->Add(piece);
}

bool BpeModel::HasMore(absl::string_view word, size_t most) const {
  // A token has a byte at least.
  if (word.size() <= most || !cover_) return false;
  return may_drop_ ? cover_->NeedsMore(WithoutDropped(word), most)
                   : cover_->NeedsMore(word, most);
}

std::string BpeModel::WithoutDropped(absl::string_view word) const {
  std::string kept;
  std::vector<int32_t> byte_ids;
  for (size_t begin = 0; begin < word.size();) {
    const absl::string_view character =
        word.substr(begin, ScanUtf8(word.substr(begin)).size);
    if (ids_.contains(character) || ByteIds(character, &byte_ids)) {
      absl::StrAppend(&kept, character);
    }
    begin += character.size();
  }
  return kept;
}

bool BpeModel::ByteIds(absl::string_view character,
                       std::vector<int32_t>* ids) const {
  if (byte_ids_.empty()) return false;
  ids->clear();
  for (const char byte : character) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id < 0) return false;
    ids->push_back(id);
  }
  return true;
}

std::vector<Symbol> BpeModel::SplitSymbols(absl::string_view word) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  const auto add = [&](size_t begin, size_t size, int32_t id) {
    Symbol symbol{};
    symbol.begin = static_cast<uint32_t>(begin);
    symbol.size = static_cast<uint32_t>(size);
    symbol.id = id;
    symbols.push_back(symbol);
  };
  size_t unknown_begin = 0;
  size_t unknown_size = 0;  // 0: no unknown token is waiting
  const auto flush_unknown = [&] {
    if (unknown_size > 0) add(unknown_begin, unknown_size, *unk_id_);
    unknown_size = 0;
  };
  std::vector<int32_t> byte_ids;
  for (size_t begin = 0; begin < word.size();) {
    const size_t size = ScanUtf8(word.substr(begin)).size;
    const absl::string_view character = word.substr(begin, size);
    const auto found = ids_.find(character);
    if (found != ids_.end()) {
      flush_unknown();
      add(begin, size, found->second);
    } else if (ByteIds(character, &byte_ids)) {
      // A waiting unknown token keeps waiting, as in `tokenizers`.
      for (size_t i = 0; i < byte_ids.size(); ++i) {
        add(begin + i, 1, byte_ids[i]);
      }
    } else if (unk_id_) {
      if (!fuse_unk_) flush_unknown();
      if (unknown_size == 0) unknown_begin = begin;
      unknown_size += size;
    }
    begin += size;
  }
  flush_unknown();
  LinkSymbols(symbols);
  return symbols;
}

absl::Status BpeModel::Encode(absl::string_view word, LimitedIds* ids) const {
  if (ignore_merges_) {
    const auto found = ids_.find(word);
    if (found != ids_.end()) return ids->Add(found->second);
  }
  if (HasMore(word, ids->room())) return ids->TooMany();
  std::vector<Symbol> symbols = SplitSymbols(word);
  if (symbols.empty()) return absl::OkStatus();
  MergeSymbols(
      symbols,
      [this](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
        const auto found = merges_.find(Pair(left.id, right.id));
        if (found == merges_.end()) return std::nullopt;
        return Merge{static_cast<double>(found->second.rank), found->second.id};
      });
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    NACRE_RETURN_IF_ERROR(ids->Add(symbols[i].id));
  }
  return absl::OkStatus();
}

}  // namespace nacre::tokenizer
