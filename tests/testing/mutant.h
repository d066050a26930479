// Which planted bug is active (cmake/Mutants.cmake). Read by the mutated copies
// of the sources only.

#ifndef TESTS_TESTING_MUTANT_H_
#define TESTS_TESTING_MUTANT_H_

#include "absl/strings/string_view.h"

namespace nacre {

// Set once, before anything runs; empty: none.
inline absl::string_view active_mutant;

inline bool MutantIs(absl::string_view name) { return active_mutant == name; }

}  // namespace nacre

#endif  // TESTS_TESTING_MUTANT_H_
