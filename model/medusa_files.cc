#include "model/medusa_files.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "common/status_macros.h"
#include "model/draft_files.h"

namespace nacre::model {
namespace {

enum class HeadPart {
  kWeight,
  kBias,
  kVocabulary,
  kLastBlock,
  kShared,
  kTokenMap
};

struct NamePattern {
  const char* kind;
  const char* text;  // K: a head, J: a block
  HeadPart part;
};

// kLastBlock: the vocabulary of a head, named as if it were one more block.
constexpr NamePattern kPatterns[] = {
    {"medusa", "K.J.linear.weight", HeadPart::kWeight},
    {"medusa", "K.J.linear.bias", HeadPart::kBias},
    {"medusa", "K.J.weight", HeadPart::kLastBlock},
    {"vllm", "blocks.K.layers.J.weight", HeadPart::kWeight},
    {"vllm", "blocks.K.layers.J.bias", HeadPart::kBias},
    {"vllm", "lm_heads.K.weight", HeadPart::kVocabulary},
    {"vllm", "token_map", HeadPart::kTokenMap},
    {"modelopt", "parallel_draft_heads.K.medusa_layers.J.linear.weight",
     HeadPart::kWeight},
    {"modelopt", "parallel_draft_heads.K.medusa_layers.J.linear.bias",
     HeadPart::kBias},
    {"modelopt", "parallel_draft_heads.K.lm_head.weight",
     HeadPart::kVocabulary},
    {"modelopt", "parallel_draft_heads.lm_head.weight", HeadPart::kShared},
};

// A tensor of heads, by its name.
struct NamedPart {
  const NamePattern* pattern = nullptr;
  int head = 0;
  int block = 0;
};

bool Matches(absl::string_view pattern, absl::string_view name,
             NamedPart* part) {
  const std::vector<absl::string_view> wanted = absl::StrSplit(pattern, '.');
  const std::vector<absl::string_view> given = absl::StrSplit(name, '.');
  if (wanted.size() != given.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] != "K" && wanted[i] != "J") {
      if (wanted[i] != given[i]) return false;
      continue;
    }
    int& number = wanted[i] == "K" ? part->head : part->block;
    // "01" or "+1" would be a second name of head 1.
    if (!absl::SimpleAtoi(given[i], &number) || number < 0 ||
        absl::StrCat(number) != given[i]) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<NamedPart> ParseName(absl::string_view name) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, "medusa_heads.")) {
    absl::ConsumePrefix(&rest, "medusa_head.");
  }
  for (const NamePattern& pattern : kPatterns) {
    NamedPart part;
    if (!Matches(pattern.text, rest, &part)) continue;
    if (part.head >= MedusaLayout::kMaxHeads ||
        part.block > MedusaLayout::kMaxBlocks) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", name, " is of more than ", MedusaLayout::kMaxHeads,
          " heads or ", MedusaLayout::kMaxBlocks, " blocks"));
    }
    part.pattern = &pattern;
    return part;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", ShownTensorName(name),
      " is none of Medusa heads: heads over another draft's hidden states, as "
      "of EAGLE with parallel heads, are not read either"));
}

class LayoutBuilder {
 public:
  absl::Status Add(const std::string& name) {
    NACRE_ASSIGN_OR_RETURN(const NamedPart part, ParseName(name));
    if (layout_.kind.empty()) {
      layout_.kind = part.pattern->kind;
      first_name_ = name;
    }
    if (layout_.kind != part.pattern->kind) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", name, " is of a file of the kind ", part.pattern->kind,
          ", but ", first_name_, " of ", layout_.kind));
    }
    std::string* place = nullptr;
    switch (part.pattern->part) {
      case HeadPart::kWeight:
        place = &heads_[part.head].blocks[part.block].weight;
        break;
      case HeadPart::kBias:
        place = &heads_[part.head].blocks[part.block].bias;
        break;
      case HeadPart::kVocabulary:
      case HeadPart::kLastBlock:
        place = &heads_[part.head].vocabulary;
        if (place->empty() && part.pattern->part == HeadPart::kLastBlock) {
          heads_[part.head].vocabulary_block = part.block;
        }
        break;
      case HeadPart::kShared:
        place = &layout_.vocabulary;
        break;
      case HeadPart::kTokenMap:
        place = &layout_.token_map;
        break;
    }
    if (!place->empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", name, " is there as ", *place, ", too"));
    }
    *place = name;
    return absl::OkStatus();
  }

  absl::StatusOr<MedusaLayout> Finish() && {
    // vLLM's heads that share a vocabulary have it under the name of the first.
    if (layout_.kind == "vllm" && heads_.size() > 1) {
      const auto owns = [](const auto& head) {
        return !head.second.vocabulary.empty();
      };
      if (std::count_if(heads_.begin(), heads_.end(), owns) == 1 &&
          heads_.count(0) == 1 && owns(*heads_.find(0))) {
        layout_.vocabulary = std::exchange(heads_[0].vocabulary, "");
      }
    }
    for (auto& [k, found] : heads_) {
      const int expected = static_cast<int>(layout_.heads.size());
      if (k != expected) return Missing(expected, 0);
      MedusaLayout::Head head;
      head.vocabulary = found.vocabulary;
      for (auto& [j, block] : found.blocks) {
        if (static_cast<size_t>(j) != head.blocks.size() ||
            block.weight.empty()) {
          return Missing(k, static_cast<int>(head.blocks.size()));
        }
        head.blocks.push_back(std::move(block));
      }
      if (head.blocks.empty()) return Missing(k, 0);
      if (found.vocabulary_block.has_value() &&
          static_cast<size_t>(*found.vocabulary_block) != head.blocks.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor ", found.vocabulary, " is not behind the ",
                         head.blocks.size(), " blocks of its head"));
      }
      layout_.heads.push_back(std::move(head));
    }
    NACRE_RETURN_IF_ERROR(CheckHeads());
    return std::move(layout_);
  }

 private:
  struct FoundHead {
    std::map<int, MedusaLayout::Block> blocks;
    std::string vocabulary;
    absl::optional<int> vocabulary_block;
  };

  absl::Status Missing(int head, int block) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "the weight of block ", block, " of head ", head, " is missing"));
  }

  // What one head has the others have, too.
  absl::Status CheckHeads() const {
    if (layout_.heads.empty()) {
      return absl::InvalidArgumentError("there is no head");
    }
    const MedusaLayout::Head& first = layout_.heads.front();
    for (size_t k = 0; k < layout_.heads.size(); ++k) {
      const MedusaLayout::Head& head = layout_.heads[k];
      if (head.blocks.size() != first.blocks.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("head ", k, " has ", head.blocks.size(),
                         " blocks, head 0 has ", first.blocks.size()));
      }
      if (head.vocabulary.empty() != first.vocabulary.empty() ||
          (!head.vocabulary.empty() && !layout_.vocabulary.empty())) {
        return absl::InvalidArgumentError(absl::StrCat(
            "some heads have a vocabulary of their own, others have not: head ",
            k, " and head 0, or ", layout_.vocabulary));
      }
    }
    if (!layout_.token_map.empty() && first.vocabulary.empty() &&
        layout_.vocabulary.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", layout_.token_map,
                       " maps the rows of a vocabulary that is not there"));
    }
    return absl::OkStatus();
  }

  MedusaLayout layout_;
  std::string first_name_;
  std::map<int, FoundHead> heads_;
};

}  // namespace

absl::StatusOr<MedusaLayout> FindMedusaLayout(
    absl::Span<const std::string> names) {
  LayoutBuilder builder;
  for (const std::string& name : names) {
    NACRE_RETURN_IF_ERROR(builder.Add(name));
  }
  return std::move(builder).Finish();
}

}  // namespace nacre::model
