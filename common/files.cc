#include "common/files.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace nacre {

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     int64_t max_bytes) {
  // A folder opens, but reads as empty.
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, " is a folder, not a file"));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  // What has no size of its own, as a pipe, is read to its end.
  const auto size = std::filesystem::file_size(path, error);
  if (!error && size > static_cast<uint64_t>(max_bytes)) {
    return absl::DataLossError(
        absl::StrCat(path, " has ", size, " bytes, expected 0 to ", max_bytes));
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path,
                                            int64_t max_bytes) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::fifo || type == fs::file_type::socket ||
      type == fs::file_type::character || type == fs::file_type::block) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a regular file"));
  }
  return ReadFile(path, max_bytes);
}

absl::Status WriteFile(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content << "\n";
  file.close();
  if (!file) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace nacre
