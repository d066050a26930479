#include "tokenizer/vocabulary_map.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace nacre::tokenizer {
namespace {

constexpr EncodeOptions kPlain = {.add_special_tokens = false,
                                  .parse_special_tokens = false};
constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";

bool IsByteToken(absl::string_view piece) {
  return piece.size() == 6 && absl::StartsWith(piece, "<0x") &&
         piece.back() == '>';
}

// What the ids of a tokenizer stand for.
class Texts {
 public:
  explicit Texts(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    // At its start a text may lose a space.
    before_ = tokenizer.Encode("a", kPlain).value_or(std::vector<int32_t>());
    text_before_ = tokenizer.Decode(before_, /*skip_special_tokens=*/false);
  }

  // Absent where the id is no whole character, or nothing.
  std::optional<std::string> Text(int32_t id) const {
    const std::unique_ptr<IncrementalDecoder> decoder =
        tokenizer_.NewDecoder(/*skip_special_tokens=*/false);
    std::string text;
    for (const int32_t each : before_) decoder->Append(each, &text);
    decoder->Append(id, &text);
    decoder->Finish(&text);
    absl::string_view rest = text;
    if (!absl::ConsumePrefix(&rest, text_before_) || rest.empty() ||
        absl::StrContains(rest, kReplacement)) {
      return std::nullopt;
    }
    return std::string(rest);
  }

  // Equal for ids of two tokenizers that are the same. Empty: no such id.
  std::string Key(int32_t id) const {
    const absl::string_view piece = tokenizer_.IdToPiece(id);
    if (piece.empty()) return "";
    if (tokenizer_.IsSpecial(id)) return absl::StrCat("special ", piece);
    const std::optional<std::string> text = Text(id);
    return text.has_value() ? absl::StrCat("text ", *text)
                            : absl::StrCat("piece ", piece);
  }

  // By key, of equal ones the best.
  absl::flat_hash_map<std::string, int32_t> Ids() const {
    absl::flat_hash_map<std::string, int32_t> ids;
    for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
      const std::string key = Key(id);
      if (key.empty()) continue;
      const auto [it, is_new] = ids.emplace(key, id);
      if (!is_new && IsByteToken(tokenizer_.IdToPiece(it->second)) &&
          !IsByteToken(tokenizer_.IdToPiece(id))) {
        it->second = id;
      }
    }
    return ids;
  }

  // The last of the ids that spell the text.
  int32_t LastId(absl::string_view text) const {
    const auto ids = tokenizer_.Encode(text, kPlain);
    if (ids.ok() && !ids->empty()) return ids->back();
    return tokenizer_.eos_id().value_or(0);
  }

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> before_;
  std::string text_before_;
};

// A pair that begins or ends texts on both sides.
void PairRoles(std::optional<int32_t> of_target,
               std::optional<int32_t> of_draft, VocabularyMap* map) {
  if (!of_target.has_value() || !of_draft.has_value()) return;
  const auto at = static_cast<size_t>(*of_target);
  if (at >= map->drawn.size() || map->drawn[at] != kNoId) return;
  map->fed[at] = *of_draft;
  if (std::find(map->drawn.begin(), map->drawn.end(), *of_draft) ==
      map->drawn.end()) {
    map->drawn[at] = *of_draft;
  }
}

// Ids that are the same on both sides stay themselves, though others may stand
// for the same text.
void KeepCommonIds(size_t count, VocabularyMap* map) {
  for (size_t id = 0; id < map->fed.size(); ++id) {
    if (id < count) {
      map->fed[id] = static_cast<int32_t>(id);
      map->drawn[id] = map->fed[id];
    } else if (map->drawn[id] < static_cast<int32_t>(count)) {
      map->drawn[id] = kNoId;
    }
  }
}

}  // namespace

VocabularyMap MapVocabulary(const Tokenizer& target, const Tokenizer& draft,
                            int size) {
  const Texts target_texts(target);
  const Texts draft_texts(draft);
  const auto target_ids = target_texts.Ids();
  const auto draft_ids = draft_texts.Ids();
  const int32_t unknown = draft_texts.LastId(kReplacement);
  VocabularyMap map;
  map.fed.resize(static_cast<size_t>(std::max(size, target.vocab_size())),
                 unknown);
  map.drawn.resize(map.fed.size(), kNoId);
  int64_t num_texts = 0;
  int64_t num_common = 0;
  for (int32_t id = 0; id < target.vocab_size(); ++id) {
    const auto at = static_cast<size_t>(id);
    const std::string key = target_texts.Key(id);
    const auto found = draft_ids.find(key);
    const bool is_common = !key.empty() && found != draft_ids.end();
    if (is_common) {
      map.fed[at] = found->second;
      if (target_ids.at(key) == id) map.drawn[at] = found->second;
    } else {
      const std::optional<std::string> text = target_texts.Text(id);
      map.fed[at] = text.has_value() ? draft_texts.LastId(*text) : unknown;
    }
    if (key.empty() || target.IsSpecial(id)) continue;
    ++num_texts;
    num_common += is_common ? 1 : 0;
  }
  // Where one token does both, the draft may say the end.
  PairRoles(target.eos_id(), draft.eos_id(), &map);
  PairRoles(target.bos_id(), draft.bos_id(), &map);
  if (HaveCommonIds(target, draft)) {
    KeepCommonIds(
        static_cast<size_t>(std::min(target.vocab_size(), draft.vocab_size())),
        &map);
  }
  map.share = num_texts == 0 ? 0
                             : static_cast<double>(num_common) /
                                   static_cast<double>(num_texts);
  return map;
}

bool HaveCommonIds(const Tokenizer& one, const Tokenizer& other) {
  const int size = std::min(one.vocab_size(), other.vocab_size());
  return one.VocabularyHash(size) == other.VocabularyHash(size);
}

}  // namespace nacre::tokenizer
