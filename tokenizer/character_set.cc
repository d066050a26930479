#include "tokenizer/character_set.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tokenizer/unicode_data.h"

namespace nacre::tokenizer {
namespace {

constexpr uint32_t Bits(Category first, Category last) {
  return ((2u << last) - 1) & ~((1u << first) - 1);
}
constexpr uint32_t kAllCategories = Bits(kLu, kCn);
constexpr uint32_t kUnassigned = 1u << kCn;

struct CategoryGroup {
  const char* name;
  uint32_t categories;
};
constexpr CategoryGroup kGroups[] = {
    {"L", Bits(kLu, kLo)}, {"M", Bits(kMn, kMe)}, {"N", Bits(kNd, kNo)},
    {"P", Bits(kPc, kPo)}, {"S", Bits(kSm, kSo)}, {"Z", Bits(kZs, kZp)},
    {"C", Bits(kCc, kCn)},
};

// Names as LooseName gives them.
constexpr CategoryGroup kLongNames[] = {
    {"any", kAllCategories},
    {"assigned", kAllCategories & ~kUnassigned},
    {"lc", Bits(kLu, kLt)},
    {"casedletter", Bits(kLu, kLt)},
    {"letter", Bits(kLu, kLo)},
    {"uppercaseletter", Bits(kLu, kLu)},
    {"lowercaseletter", Bits(kLl, kLl)},
    {"titlecaseletter", Bits(kLt, kLt)},
    {"modifierletter", Bits(kLm, kLm)},
    {"otherletter", Bits(kLo, kLo)},
    {"mark", Bits(kMn, kMe)},
    {"nonspacingmark", Bits(kMn, kMn)},
    {"spacingmark", Bits(kMc, kMc)},
    {"enclosingmark", Bits(kMe, kMe)},
    {"number", Bits(kNd, kNo)},
    {"decimalnumber", Bits(kNd, kNd)},
    {"letternumber", Bits(kNl, kNl)},
    {"othernumber", Bits(kNo, kNo)},
    {"punctuation", Bits(kPc, kPo)},
    {"connectorpunctuation", Bits(kPc, kPc)},
    {"dashpunctuation", Bits(kPd, kPd)},
    {"openpunctuation", Bits(kPs, kPs)},
    {"closepunctuation", Bits(kPe, kPe)},
    {"initialpunctuation", Bits(kPi, kPi)},
    {"finalpunctuation", Bits(kPf, kPf)},
    {"otherpunctuation", Bits(kPo, kPo)},
    {"symbol", Bits(kSm, kSo)},
    {"mathsymbol", Bits(kSm, kSm)},
    {"currencysymbol", Bits(kSc, kSc)},
    {"modifiersymbol", Bits(kSk, kSk)},
    {"othersymbol", Bits(kSo, kSo)},
    {"separator", Bits(kZs, kZp)},
    {"spaceseparator", Bits(kZs, kZs)},
    {"lineseparator", Bits(kZl, kZl)},
    {"paragraphseparator", Bits(kZp, kZp)},
    {"other", Bits(kCc, kCn)},
    {"control", Bits(kCc, kCc)},
    {"format", Bits(kCf, kCf)},
    {"surrogate", Bits(kCs, kCs)},
    {"privateuse", Bits(kCo, kCo)},
    {"unassigned", Bits(kCn, kCn)},
};

// White_Space. PCRE2's own \s takes in U+180E.
constexpr char kSpaces[] =
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}"
    "\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
constexpr char kNonSpaces[] =
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}"
    "\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}"
    "\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}";
// Alphabetic symbols.
constexpr char kWordSymbols[] =
    "\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}"
    "\\x{1F170}-\\x{1F189}";
constexpr char kLatinWords[] = "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
constexpr char kNothing[] = "[^\\p{Any}]";

// Without what makes no difference in the name of a property.
std::string LooseName(absl::string_view name) {
  std::string loose;
  for (const char c : name) {
    if (c != ' ' && c != '_' && c != '-') {
      loose.push_back(absl::ascii_tolower(c));
    }
  }
  return loose;
}

std::string Range(char32_t first, char32_t last) {
  const auto code = [](char32_t c) {
    return absl::StrCat("\\x{", absl::Hex(static_cast<uint32_t>(c)), "}");
  };
  return first == last ? code(first)
                       : absl::StrCat(code(first), "-", code(last));
}

template <typename Wanted>
std::string Additions(const Wanted& wanted) {
  std::string items;
  for (size_t i = 0; i < kUnicodeAdditionCount; ++i) {
    const UnicodeAddition& row = kUnicodeAdditions[i];
    if (wanted(row)) items += Range(row.first, row.last);
  }
  return items;
}

std::string OneOf(const std::vector<std::string>& patterns) {
  if (patterns.empty()) return kNothing;
  if (patterns.size() == 1) return patterns[0];
  return absl::StrCat("(?:", absl::StrJoin(patterns, "|"), ")");
}

}  // namespace

bool CharacterSet::has_unassigned() const {
  return (categories_ & kUnassigned) != 0;
}

void CharacterSet::Open() {
  if (!negated_ || Become(false)) return;
  std::string pattern = Pattern();
  const size_t size = size_;
  *this = CharacterSet(additions_);
  alternatives_.push_back(std::move(pattern));
  size_ = size;
}

void CharacterSet::AddItems(absl::string_view items) {
  Open();
  absl::StrAppend(&items_, items);
  size_ += items.size();
}

void CharacterSet::AddRange(char32_t first, char32_t last) {
  AddItems(Range(first, last));
}

bool CharacterSet::AddScript(absl::string_view name) {
  const std::string loose = LooseName(name);
  // Unassigned characters have the script "Unknown", which changes with every
  // version.
  if (loose.empty() || loose == "unknown" || loose == "zzzz") return false;
  for (const char c : loose) {
    if (!absl::ascii_isalpha(c)) return false;
  }
  // Alone, a script's name would mean its Script_Extensions.
  AddItems(absl::StrCat("\\p{sc:", loose, "}"));
  if (!additions_) return true;
  AddItems(Additions([&](const UnicodeAddition& row) {
    const auto& names = kAddedScripts[row.script];
    return loose == LooseName(names[0]) || loose == LooseName(names[1]);
  }));
  return true;
}

bool CharacterSet::AddProperty(absl::string_view name) {
  Open();
  const std::string loose = LooseName(name);
  for (int i = 0; i <= kCn; ++i) {
    if (loose != LooseName(kCategoryNames[i])) continue;
    categories_ |= 1u << i;
    return true;
  }
  for (const CategoryGroup& group : kGroups) {
    if (loose != LooseName(group.name)) continue;
    categories_ |= group.categories;
    return true;
  }
  for (const CategoryGroup& group : kLongNames) {
    if (loose != group.name) continue;
    categories_ |= group.categories;
    return true;
  }
  return AddScript(name);
}

bool CharacterSet::AddPosixClass(absl::string_view name) {
  Open();
  if (name == "digit") {
    categories_ |= 1u << kNd;
  } else if (name == "punct") {
    categories_ |= Bits(kPc, kSo);
  } else if (name == "space") {
    AddSpaces();
  } else if (name == "blank") {
    categories_ |= 1u << kZs;
    AddRange('\t', '\t');
  } else if (name == "cntrl") {
    categories_ |= 1u << kCc;
  } else if (name == "graph") {
    categories_ |= Bits(kLu, kSo) | Bits(kCf, kCo);
  } else if (name == "print") {
    categories_ |= Bits(kLu, kZs) | Bits(kCf, kCo);
  } else if (name == "word") {
    AddWords();
  } else if (name == "xdigit") {
    AddRange('0', '9');
    AddRange('A', 'F');
    AddRange('a', 'f');
  } else if (name == "ascii") {
    AddRange(0, 0x7F);
  } else {
    return false;
  }
  return true;
}

void CharacterSet::AddSpaces() { AddItems(kSpaces); }

void CharacterSet::AddNonSpaces() { AddItems(kNonSpaces); }

void CharacterSet::AddWords() {
  Open();
  categories_ |= Bits(kLu, kMe) | Bits(kNd, kNl) | Bits(kPc, kPc);
  AddItems(kWordSymbols);
}

void CharacterSet::AddLatinWords() { AddItems(kLatinWords); }

bool CharacterSet::Become(bool negated) {
  if (!simple()) return false;
  if (negated_ == negated) return true;
  if (!items_.empty()) return false;
  categories_ ^= kAllCategories;
  negated_ = negated;
  return true;
}

void CharacterSet::Add(const CharacterSet& other) {
  if (simple() && !negated_ && categories_ == 0 && items_.empty()) {
    *this = other;
    return;
  }
  Open();
  CharacterSet part = other;
  if (part.negated_ && !part.Become(false)) {
    alternatives_.push_back(part.Pattern());
  } else {
    categories_ |= part.categories_;
    items_ += part.items_;
    alternatives_.insert(alternatives_.end(), part.alternatives_.begin(),
                         part.alternatives_.end());
  }
  size_ += part.size_;
}

void CharacterSet::Intersect(CharacterSet other) {
  const size_t size = size_ + other.size_;
  CharacterSet a = *this;
  CharacterSet b = other;
  // Neither in one nor in the other: one class says it.
  if (a.Become(true) && b.Become(true)) {
    a.categories_ |= b.categories_;
    a.items_ += b.items_;
    *this = std::move(a);
    size_ = size;
    return;
  }
  if (negated_ && !other.negated_) std::swap(*this, other);
  const bool negated = other.negated_;
  if (negated) other.Negate();
  std::string pattern = absl::StrCat(
      "(?:", Pattern(), "(?<", negated ? "!" : "=", other.Pattern(), "))");
  *this = CharacterSet(additions_);
  alternatives_.push_back(std::move(pattern));
  size_ = size;
}

// The inside of a class; with additions `categories` must not have Cn, which
// holds what PCRE2 does not know.
std::string CharacterSet::CategoryItems(uint32_t categories) const {
  std::string items;
  uint32_t rest = categories;
  for (const CategoryGroup& group : kGroups) {
    if ((rest & group.categories) != group.categories) continue;
    absl::StrAppend(&items, "\\p{", group.name, "}");
    rest &= ~group.categories;
  }
  for (int i = 0; i <= kCn; ++i) {
    if ((rest >> i & 1) != 0) {
      absl::StrAppend(&items, "\\p{", kCategoryNames[i], "}");
    }
  }
  if (additions_) {
    items += Additions([&](const UnicodeAddition& row) {
      return (categories >> row.category & 1) != 0;
    });
  }
  return items;
}

std::string CharacterSet::Union() const {
  std::vector<std::string> parts;
  std::string items = items_;
  if (additions_ && has_unassigned()) {
    const uint32_t others = ~categories_ & kAllCategories;
    parts.push_back(others == 0
                        ? "\\p{Any}"
                        : absl::StrCat("[^", CategoryItems(others), "]"));
  } else {
    items += CategoryItems(categories_);
  }
  if (!items.empty()) parts.push_back(absl::StrCat("[", items, "]"));
  parts.insert(parts.end(), alternatives_.begin(), alternatives_.end());
  return OneOf(parts);
}

std::string CharacterSet::Complement() const {
  if (!simple()) return absl::StrCat("(?:(?!", Union(), ")\\p{Any})");
  if (categories_ == 0 && items_.empty()) return "\\p{Any}";
  if (!additions_ || !has_unassigned()) {
    return absl::StrCat("[^", items_, CategoryItems(categories_), "]");
  }
  const std::string others = CategoryItems(~categories_ & kAllCategories);
  if (others.empty()) return kNothing;
  if (items_.empty()) return absl::StrCat("[", others, "]");
  return absl::StrCat("(?:[", others, "](?<![", items_, "]))");
}

std::string CharacterSet::Pattern() const {
  if (simple() && items_.empty() && !additions_) {
    // Shorter, and faster in PCRE2.
    for (const CategoryGroup& group : kGroups) {
      if (categories_ != group.categories) continue;
      return absl::StrCat(negated_ ? "\\P{" : "\\p{", group.name, "}");
    }
    for (int i = 0; i <= kCn; ++i) {
      if (categories_ != 1u << i) continue;
      return absl::StrCat(negated_ ? "\\P{" : "\\p{", kCategoryNames[i], "}");
    }
  }
  return negated_ ? Complement() : Union();
}

}  // namespace nacre::tokenizer
