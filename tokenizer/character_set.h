// A set of characters as Oniguruma builds one (properties, unions,
// intersections, complements), written as a PCRE2 pattern of one character.
// Values; used by one thread.

#ifndef TOKENIZER_CHARACTER_SET_H_
#define TOKENIZER_CHARACTER_SET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace nacre::tokenizer {

class CharacterSet {
 public:
  // Empty. With `additions` the pattern is right for the characters of
  // unicode_data.h too; without, it is shorter and faster.
  explicit CharacterSet(bool additions) : additions_(additions) {}

  void AddRange(char32_t first, char32_t last);
  // \p{name}: a category, "Any", "Assigned", or else a script. False: it is no
  // name at all; a script that PCRE2 does not know fails when the pattern is
  // compiled.
  bool AddProperty(absl::string_view name);
  // [:name:]. False: no such class, or one that other Unicode versions have
  // otherwise even for old characters ("alpha", "alnum", "upper", "lower").
  bool AddPosixClass(absl::string_view name);
  void AddSpaces();     // \s
  void AddNonSpaces();  // \S
  // \w inside brackets. Outside them Oniguruma's \w has six characters more,
  // AddLatinWords.
  void AddWords();
  void AddLatinWords();

  void Add(const CharacterSet& other);
  void Intersect(CharacterSet other);
  void Negate() { negated_ = !negated_; }

  // Matches one character of the set.
  std::string Pattern() const;
  // About the length of Pattern().
  size_t size() const { return size_; }

 private:
  bool simple() const { return alternatives_.empty(); }
  bool has_unassigned() const;
  // Says a complement so that more can be added.
  void Open();
  void AddItems(absl::string_view items);
  bool AddScript(absl::string_view name);
  // Says the same with the wanted value of negated_, if it can be said so.
  bool Become(bool negated);
  std::string CategoryItems(uint32_t categories) const;
  std::string Union() const;
  std::string Complement() const;

  bool additions_;
  bool negated_ = false;                   // all that is in none of the three
  uint32_t categories_ = 0;                // bits by Category
  std::string items_;                      // more of a class's inside
  std::vector<std::string> alternatives_;  // patterns of one character each
  size_t size_ = 64;
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_CHARACTER_SET_H_
