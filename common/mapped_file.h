// A read-only memory mapping of a whole file: what is read of it is not copied
// first. What was touched counts as memory of the process until it is given
// back.
//
// Thread-safe: immutable. Truncating a file while it is mapped ends the process
// (SIGBUS), as for every program that maps files. So weights are mapped only
// while they are loaded.

#ifndef COMMON_MAPPED_FILE_H_
#define COMMON_MAPPED_FILE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nacre {

class MappedFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED and the like, naming the file;
  // INVALID_ARGUMENT if it is not a regular file.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(
      const std::string& path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  absl::string_view bytes() const {
    return {static_cast<const char*>(data_), size_};
  }

  // Takes `part` of bytes(), and what shares its pages, out of this process's
  // memory. It stays valid: what is touched again, at the same time even, comes
  // again from the system's cache or the file. Fatal for a part of anything
  // else.
  void GiveBack(absl::string_view part) const;

 private:
  MappedFile(void* data, size_t size) : data_(data), size_(size) {}

  void* data_;  // null for an empty file
  size_t size_;
};

}  // namespace nacre

#endif  // COMMON_MAPPED_FILE_H_
