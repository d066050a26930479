#include "common/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace nacre {

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(
    const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("open ", path));
  struct stat info;
  absl::Status status;
  void* data = nullptr;
  if (fstat(fd, &info) != 0) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("stat ", path));
  } else if (!S_ISREG(info.st_mode)) {
    status = absl::InvalidArgumentError(
        absl::StrCat(path, " is not a regular file"));
  } else if (info.st_size > 0) {
    data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ,
                MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      status = absl::ErrnoToStatus(errno, absl::StrCat("map ", path));
    }
  }
  close(fd);
  if (!status.ok()) return status;
  return std::unique_ptr<MappedFile>(
      new MappedFile(data, static_cast<size_t>(info.st_size)));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace nacre
