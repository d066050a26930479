#include "common/scratch_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace nacre {
namespace {

// A file of `dir` without a name, open; -1 with errno.
int OpenNameless(const std::string& dir) {
  const int fd =
      open(dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  // Some file systems have no such files.
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  std::string path = absl::StrCat(dir, "/nacre-XXXXXX");
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

absl::Status NoFileIn(const std::string& dir) {
  return absl::ErrnoToStatus(errno, absl::StrCat("a file in ", dir));
}

absl::Status TakeRoom(int fd, size_t bytes, const std::string& dir) {
  // A file past the process's limit ends it by a signal.
  rlimit limit;
  const bool fits = getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
                    limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
  const int error =
      fits ? posix_fallocate(fd, 0, static_cast<off_t>(bytes)) : EFBIG;
  if (error == 0) return absl::OkStatus();
  const std::string what = absl::StrCat(bytes, " bytes in ", dir);
  // A limit of the process or of the file system is no room, too.
  if (error == ENOSPC || error == EFBIG || error == EDQUOT) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there is no room for ", what));
  }
  return absl::ErrnoToStatus(error, what);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScratchMemory>> ScratchMemory::Create(
    size_t bytes, const std::string& dir) {
  int fd = -1;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (!dir.empty()) {
    // To take room that is not there fills the disk before it fails, and takes
    // it from others meanwhile.
    if (absl::Status status = Check(bytes, dir); !status.ok()) return status;
    fd = OpenNameless(dir);
    if (fd < 0) return NoFileIn(dir);
    if (absl::Status status = TakeRoom(fd, bytes, dir); !status.ok()) {
      close(fd);
      return status;
    }
    flags = MAP_SHARED;
  }
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  const int error = errno;
  if (fd >= 0) close(fd);
  if (data == MAP_FAILED) {
    return absl::ErrnoToStatus(error, absl::StrCat("map ", bytes, " bytes"));
  }
  return std::unique_ptr<ScratchMemory>(
      new ScratchMemory(static_cast<char*>(data), bytes));
}

absl::Status ScratchMemory::Check(size_t bytes, const std::string& dir) {
  const int fd = OpenNameless(dir);
  if (fd < 0) return NoFileIn(dir);
  struct statvfs room = {};
  const bool is_known =
      fstatvfs(fd, &room) == 0 && room.f_blocks > 0 && room.f_frsize > 0;
  close(fd);
  // A system that does not know is asked when the room is taken. Some is kept
  // for root.
  const auto free =
      static_cast<size_t>(geteuid() == 0 ? room.f_bfree : room.f_bavail) *
      static_cast<size_t>(room.f_frsize);
  if (!is_known || bytes <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("there is no room for ",
                                                   bytes, " bytes in ", dir,
                                                   ": ", free, " are free"));
}

ScratchMemory::~ScratchMemory() { munmap(data_, size_); }

}  // namespace nacre
