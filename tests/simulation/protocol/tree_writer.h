// What a draft that drafts a chain would say if it grew a tree: its tokens
// among siblings, children and repetitions that this makes up.
//
// One for each opening of a draft's session. Used by one thread.

#ifndef TESTS_SIMULATION_PROTOCOL_TREE_WRITER_H_
#define TESTS_SIMULATION_PROTOCOL_TREE_WRITER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "simulation/random.h"
#include "speculation/pipeline.h"

namespace nacre::protocol {

class TreeWriter {
 public:
  // `is_right`: the draft is never wrong. Then nothing made up comes before its
  // token or takes its place.
  TreeWriter(uint64_t seed, bool is_right)
      : random_(seed), is_right_(is_right) {}

  // Turns a chain of one token, drawn after the text of that hash, into nodes.
  // Appends what it made up to `made`: the hash of the text after which a
  // token stands, and the token.
  void Write(uint64_t prefix, speculation::Tail* tail,
             std::vector<std::pair<uint64_t, int32_t>>* made);

 private:
  struct Text {
    int number = 0;
    uint64_t hash = 0;
  };

  int32_t AnyToken();
  int Add(int parent, int32_t token_id, speculation::Tail* tail);
  void MakeUp(const Text& parent, int32_t not_token, speculation::Tail* tail,
              std::vector<std::pair<uint64_t, int32_t>>* made);

  simulation::Random random_;
  bool is_right_;
  int next_number_ = 1;
  absl::flat_hash_map<int, int> numbers_;  // of a position's token
  Text late_;  // something may still be made up after it; number 0: nothing
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_TREE_WRITER_H_
