// The facts that make_unicode_data.py finds out about the characters of
// `tokenizers` 0.23.3, whose patterns read by Unicode 16. unicode_additions.h
// has the look-ups.

#ifndef TOKENIZER_UNICODE_DATA_H_
#define TOKENIZER_UNICODE_DATA_H_

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace nacre::tokenizer {

// Unicode's General_Category, in the order of kCategoryNames.
enum Category : uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCs,
  kCo,
  kCn,
};
inline constexpr const char* kCategoryNames[] = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
    "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
    "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

// Characters of which Unicode 14 says something else. All lie at U+0800 or
// above.
struct UnicodeAddition {
  char32_t first;
  char32_t last;
  Category category;
  uint8_t script;  // index into kAddedScripts
};

struct CaseAddition {
  char32_t first;
  char32_t last;
  int32_t offset;  // from upper to lower case
};

struct CodePointRange {
  char32_t first;
  char32_t last;
};

// Tables are in the order of their code points.
extern const UnicodeAddition kUnicodeAdditions[];
extern const size_t kUnicodeAdditionCount;
extern const char* const kAddedScripts[][2];  // long and short name
extern const size_t kAddedScriptCount;
// Lower case that Unicode 14 does not know.
extern const CaseAddition kLowercaseAdditions[];
extern const size_t kLowercaseAdditionCount;
// Younger than the normalization tables of the library (Unicode 9), which
// leaves them as they are.
extern const CodePointRange kInertRanges[];
extern const size_t kInertRangeCount;

// What the pre-tokenizers Punctuation and Digits look for.
extern const char kPunctuationPattern[];
extern const char kDigitsPattern[];

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_UNICODE_DATA_H_
