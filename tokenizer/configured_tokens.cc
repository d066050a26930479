#include "tokenizer/configured_tokens.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace nacre::tokenizer {
namespace {

std::string InQuotes(absl::string_view text) {
  return absl::StrCat("'", absl::Utf8SafeCHexEscape(CutUtf8(text, 64)), "'");
}

std::string NameOfToken(const AddedToken& token) {
  return absl::StrCat(token.path, ": added token ", InQuotes(token.content));
}

bool HaveEqualFlags(const AddedToken& a, const AddedToken& b) {
  return a.single_word == b.single_word && a.lstrip == b.lstrip &&
         a.rstrip == b.rstrip && a.normalized == b.normalized &&
         a.special == b.special;
}

class Numbering {
 public:
  Numbering(std::vector<AddedToken> own, const std::vector<std::string>& pieces,
            const TokenizerConfig& config)
      : config_(config),
        pieces_(pieces),
        special_names_(SpecialNames(config)),
        tokens_(std::move(own)),
        next_id_(static_cast<int32_t>(pieces.size())) {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      ids_.emplace(pieces[tokens_[i].id], tokens_[i].id);
      index_.emplace(tokens_[i].id, i);
    }
    // Of equal pieces the lowest id, but those of added tokens go first.
    for (size_t i = 0; i < pieces.size(); ++i) {
      ids_.emplace(pieces[i], static_cast<int32_t>(i));
    }
  }

  absl::Status AddTold(const AddedToken& token, ToldIds told) {
    const auto known = ids_.find(token.content);
    if (told == ToldIds::kFollow && known != ids_.end()) {
      Put(token, known->second);
      return absl::OkStatus();
    }
    const absl::string_view holder = PieceAt(token.id);
    if (!holder.empty() && holder != token.content) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOfToken(token), " has id ", token.id, ", which is ",
                       InQuotes(holder), " in the vocabulary"));
    }
    if (told == ToldIds::kFollow && token.id != next_id_) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOfToken(token), " has id ", token.id,
                       ", but the next one behind the vocabulary is ", next_id_,
                       ", which `tokenizers` gives it"));
    }
    Put(token, token.id);
    return absl::OkStatus();
  }

  absl::Status AddListed(const AddedToken& token) {
    const auto known = ids_.find(token.content);
    if (known != ids_.end()) {
      if (!index_.contains(known->second)) Put(token, known->second);
      return absl::OkStatus();
    }
    NACRE_RETURN_IF_ERROR(CheckNextId(token));
    Put(token, next_id_);
    return absl::OkStatus();
  }

  std::vector<AddedToken> Take() { return std::move(tokens_); }

 private:
  // What has the id, nothing where it is free.
  absl::string_view PieceAt(int32_t id) const {
    const auto added = index_.find(id);
    if (added != index_.end()) return tokens_[added->second].content;
    return static_cast<size_t>(id) < pieces_.size()
               ? absl::string_view(pieces_[id])
               : absl::string_view();
  }

  absl::Status CheckNextId(const AddedToken& token) {
    // `transformers` numbers a pad_token that is nowhere before the listed
    // ones.
    for (; num_named_ < config_.named_fields.size(); ++num_named_) {
      const NamedField& field = config_.named_fields[num_named_];
      if (field.content.empty() || ids_.contains(field.content)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          NameOfToken(token), " has no id, nor has ", field.path, " ",
          InQuotes(field.content), ": added_tokens_decoder must tell both"));
    }
    if (next_id_ < kMaxVocabularySize) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(NameOfToken(token),
                                                   " has token id ", next_id_,
                                                   " behind the vocabulary, "
                                                   "the limit is ",
                                                   kMaxVocabularySize - 1));
  }

  // `entry` is one of config_.
  void Put(const AddedToken& entry, int32_t id) {
    AddedToken token = entry;
    token.id = id;
    const auto [place, is_new] = index_.emplace(id, tokens_.size());
    if (!is_new) {
      AddedToken& own = tokens_[place->second];
      if (!config_.has_decoder || HaveEqualFlags(own, token)) return;
      // One that was special stays it, in `tokenizers`, too.
      token.special |= own.special;
    }
    token.special |= special_names_.contains(token.content);
    ids_.emplace(entry.content, id);
    next_id_ = std::max(next_id_, id + 1);
    if (is_new) {
      tokens_.push_back(std::move(token));
    } else {
      tokens_[place->second] = std::move(token);
    }
  }

  const TokenizerConfig& config_;
  const std::vector<std::string>& pieces_;
  const absl::flat_hash_set<std::string> special_names_;
  std::vector<AddedToken> tokens_;
  int32_t next_id_;
  size_t num_named_ = 0;  // of named_fields: found to have ids
  // By content; views into pieces_ and config_.
  absl::flat_hash_map<absl::string_view, int32_t> ids_;
  absl::flat_hash_map<int32_t, size_t> index_;  // of tokens_, by id
};

}  // namespace

absl::StatusOr<std::vector<AddedToken>> WithConfiguredTokens(
    std::vector<AddedToken> own, const std::vector<std::string>& pieces,
    const TokenizerConfig& config, ToldIds told) {
  if (config.added_tokens.empty() && config.listed_tokens.empty()) return own;
  Numbering numbering(std::move(own), pieces, config);
  for (const AddedToken& token : config.added_tokens) {
    NACRE_RETURN_IF_ERROR(numbering.AddTold(token, told));
  }
  for (const AddedToken& token : config.listed_tokens) {
    NACRE_RETURN_IF_ERROR(numbering.AddListed(token));
  }
  return numbering.Take();
}

}  // namespace nacre::tokenizer
