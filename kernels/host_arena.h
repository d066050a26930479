// Host memory for what stays and is read at full speed: packed weights. Pieces
// lie one after another in large mappings of huge pages. In mappings of their
// own, matrices below a few MB would have pages of 4 KiB, and the translation
// of their addresses would cost up to a quarter of the bandwidth.
//
// Thread-compatible. Pieces may outlive the arena, and be freed by any thread.

#ifndef KERNELS_HOST_ARENA_H_
#define KERNELS_HOST_ARENA_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/memory_ops.h"

namespace nacre::kernels {

class HostArena {
 public:
  // A mapping holds pieces of so many bytes together, or one larger piece. What
  // no piece touches costs no memory, but for the rest of a huge page.
  static constexpr size_t kMappingBytes = size_t{64} << 20;

  HostArena();
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // Zeroed, 64-byte aligned. Memory goes back to the system once all pieces of
  // a mapping are freed; before, only that of its last piece is used again.
  // RESOURCE_EXHAUSTED when the system has no room.
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes);

 private:
  class Mapping;
  class Piece;

  std::shared_ptr<Mapping> current_;  // of those with pieces the emptiest
};

}  // namespace nacre::kernels

#endif  // KERNELS_HOST_ARENA_H_
