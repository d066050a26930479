// The parts of a model that lies in several GGUF files, as llama.cpp cuts one.
// Each says its number, how many there are and how many tensors they have
// together (split.no, split.count, split.tensors.count). The first has the
// metadata of all.
//
// Values and pure functions.

#ifndef COMMON_GGUF_PARTS_H_
#define COMMON_GGUF_PARTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/metadata.h"

namespace nacre::gguf {

struct PartOf {
  uint64_t number = 0;  // from 0, below count
  uint64_t count = 1;
  uint64_t num_tensors = 0;  // of all parts; 0 where there is but one
};

// NOT_FOUND or INVALID_ARGUMENT names the key that is missing or out of range.
absl::StatusOr<PartOf> ReadPartOf(const Metadata& metadata);

// The path of part `number` of `count`, from 0, beside a file that is named as
// one of `count`. INVALID_ARGUMENT: `path` is not.
absl::StatusOr<std::string> PartPath(const std::string& path, uint64_t number,
                                     uint64_t count);

// Moves the tensors of `part`, which must be number `number`, to the `first`.
// INVALID_ARGUMENT: it is another one, or a tensor is in both.
absl::Status AddPart(uint64_t number, Contents&& part, Contents* first);

// INVALID_ARGUMENT: the parts together have other than the promised tensors.
absl::Status CheckAllAreThere(const Contents& first);

}  // namespace nacre::gguf

#endif  // COMMON_GGUF_PARTS_H_
