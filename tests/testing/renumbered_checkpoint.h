// A checkpoint whose vocabulary is another one, though it computes the same:
// the ids of its pieces of text are exchanged, and the rows of its matrices
// with them.
//
// Thread-safe: pure functions on distinct folders.

#ifndef TESTS_TESTING_RENUMBERED_CHECKPOINT_H_
#define TESTS_TESTING_RENUMBERED_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace nacre::testing {

// Writes the checkpoint of `from`, which has a SentencePiece model and one file
// of bfloat16 tensors, into `dir`. Control and byte pieces keep their ids. Each
// `renamed_every`-th piece besides is another text than any there (0: none).
// Returns the new id of each old one.
std::vector<int32_t> WriteRenumberedCheckpoint(const std::string& from,
                                               int renamed_every,
                                               const std::string& dir);

}  // namespace nacre::testing

#endif  // TESTS_TESTING_RENUMBERED_CHECKPOINT_H_
