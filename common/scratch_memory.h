// Memory that may lie in a file: for what is too much for the memory of the
// machine and need not outlive the process.
//
// Immutable, and so for any thread. The caller sees to it that threads which
// write to data() do not meet.

#ifndef COMMON_SCRATCH_MEMORY_H_
#define COMMON_SCRATCH_MEMORY_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace nacre {

class ScratchMemory {
 public:
  // `bytes` >= 1 zeros. Without `dir` they take the machine's memory as they
  // are written. Else they are a file there, without a name: its room is taken
  // at once, and is free again when the process has ended, however it ends.
  // RESOURCE_EXHAUSTED with the bytes and the folder where there is no room,
  // NOT_FOUND, PERMISSION_DENIED and the like where there is no such folder.
  static absl::StatusOr<std::unique_ptr<ScratchMemory>> Create(
      size_t bytes, const std::string& dir);

  // What of that can be said before, of a folder: the errors of a folder that
  // is none or takes no files. RESOURCE_EXHAUSTED with what is free where that
  // is less. Takes no room, and leaves nothing there.
  static absl::Status Check(size_t bytes, const std::string& dir);

  ~ScratchMemory();
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

  // Begins at a page. Where a file's disk fails, a touch ends the process with
  // SIGBUS, as with any mapped file.
  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  ScratchMemory(char* data, size_t size) : data_(data), size_(size) {}

  char* const data_;
  const size_t size_;
};

}  // namespace nacre

#endif  // COMMON_SCRATCH_MEMORY_H_
