#include "worker/recording/hidden_file.h"

#include <spdlog/spdlog.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace nacre::worker {
namespace {

// Numbers are written as they lie in memory.
static_assert(std::endian::native == std::endian::little);

std::array<char, kHiddenHeaderBytes> Header(uint32_t size) {
  std::array<char, kHiddenHeaderBytes> header;
  char* at = header.data();
  std::memcpy(at, kHiddenMagic.data(), kHiddenMagic.size());
  at += kHiddenMagic.size();
  std::memcpy(at, &kHiddenVersion, sizeof(kHiddenVersion));
  at += sizeof(kHiddenVersion);
  std::memcpy(at, &size, sizeof(size));
  return header;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HiddenFile>> HiddenFile::Create(
    const std::string& path, int size) {
  if (size < 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--record-hidden ", path, ": this model shows no hidden states"));
  }
  std::FILE* file = std::fopen(path.c_str(), "wbx");
  if (file == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("--record-hidden ", path));
  }
  std::unique_ptr<HiddenFile> hidden(
      new HiddenFile(path, file, static_cast<size_t>(size)));
  const auto header = Header(static_cast<uint32_t>(size));
  if (std::fwrite(header.data(), 1, header.size(), file) != header.size() ||
      std::fflush(file) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("--record-hidden ", path));
  }
  return hidden;
}

HiddenFile::~HiddenFile() {
  std::fclose(file_);
  if (lost_ > 0) {
    spdlog::error("--record-hidden {}: {} states were not recorded", path_,
                  lost_);
  }
}

absl::optional<int64_t> HiddenFile::Append(absl::Span<const float> state) {
  NACRE_CHECK(state.size() == size_, "a hidden state of another model");
  if (lost_ == 0) {
    // Flushed: a line that names a state is written after it.
    if (std::fwrite(state.data(), sizeof(float), size_, file_) == size_ &&
        std::fflush(file_) == 0) {
      return written_++;
    }
    spdlog::error("--record-hidden {}: {}; nothing more is recorded", path_,
                  std::strerror(errno));
  }
  ++lost_;
  return absl::nullopt;
}

}  // namespace nacre::worker
