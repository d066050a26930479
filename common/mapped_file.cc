#include "common/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace nacre {
namespace {

// A fault brings what lies around the page that is touched, too. A multiple of
// the size of a page.
constexpr size_t kFaultBytes = size_t{64} << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(
    const std::string& path) {
  // A pipe would wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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

void MappedFile::GiveBack(absl::string_view part) const {
  if (part.empty()) return;
  const absl::string_view all = bytes();
  const std::less_equal<const char*> not_behind;
  NACRE_CHECK(!all.empty() && not_behind(all.data(), part.data()) &&
                  not_behind(part.data() + part.size(), all.data() + size_),
              "a part of another file");
  // The mapping begins at a page.
  const auto begin = static_cast<size_t>(part.data() - all.data());
  const size_t first = begin / kFaultBytes * kFaultBytes;
  const size_t end = (begin + part.size() + kFaultBytes - 1) / kFaultBytes;
  // Only a wish: without it more memory is taken.
  madvise(static_cast<char*>(data_) + first,
          std::min(end * kFaultBytes, size_) - first, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace nacre
