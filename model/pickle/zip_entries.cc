#include "model/pickle/zip_entries.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/json_fields.h"
#include "common/status_macros.h"

namespace nacre::model {
namespace {

constexpr size_t kEndBytes = 22;
constexpr size_t kEnd64LocatorBytes = 20;
constexpr size_t kEnd64Bytes = 56;
constexpr size_t kDirectoryEntryBytes = 46;
constexpr size_t kLocalHeaderBytes = 30;
constexpr size_t kMaxCommentBytes = 0xFFFF;
constexpr uint32_t kEndMark = 0x06054b50;
constexpr uint32_t kEnd64LocatorMark = 0x07064b50;
constexpr uint32_t kEnd64Mark = 0x06064b50;
constexpr uint32_t kDirectoryMark = 0x02014b50;
constexpr uint32_t kLocalMark = 0x04034b50;
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // the number is in the zip64 field

absl::Status BadZip(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("not a zip archive that can be read: ", what));
}

std::string ShownEntry(const std::string& name) {
  return JsonText(Json(name.substr(0, 120)));
}

// A little-endian number; the caller knows that it is inside.
template <typename T>
T LoadAt(absl::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

bool HasMark(absl::string_view bytes, uint64_t at, size_t size, uint32_t mark) {
  return at <= bytes.size() && size <= bytes.size() - at &&
         LoadAt<uint32_t>(bytes, at) == mark;
}

struct Directory {
  uint64_t offset = 0;
  uint64_t count = 0;
};

absl::StatusOr<Directory> FindDirectory(absl::string_view archive) {
  if (archive.size() < kEndBytes) return BadZip("it is too short");
  const size_t last = archive.size() - kEndBytes;
  const size_t first = last - std::min(last, kMaxCommentBytes);
  size_t end = last;
  while (!HasMark(archive, end, kEndBytes, kEndMark)) {
    if (end == first) return BadZip("it has no directory at its end");
    --end;
  }
  Directory directory;
  directory.count = LoadAt<uint16_t>(archive, end + 10);
  directory.offset = LoadAt<uint32_t>(archive, end + 16);
  if (end < kEnd64LocatorBytes ||
      !HasMark(archive, end - kEnd64LocatorBytes, kEnd64LocatorBytes,
               kEnd64LocatorMark)) {
    return directory;
  }
  const uint64_t at = LoadAt<uint64_t>(archive, end - kEnd64LocatorBytes + 8);
  if (!HasMark(archive, at, kEnd64Bytes, kEnd64Mark)) {
    return BadZip("its zip64 directory is not where it says");
  }
  directory.count = LoadAt<uint64_t>(archive, at + 32);
  directory.offset = LoadAt<uint64_t>(archive, at + 48);
  return directory;
}

// The next number of a zip64 extra field, in the place of `narrow`.
std::optional<uint64_t> Widened(uint32_t narrow, absl::string_view* field) {
  if (narrow != kIn64) return narrow;
  if (field->size() < 8) return std::nullopt;
  const uint64_t wide = LoadAt<uint64_t>(*field, 0);
  field->remove_prefix(8);
  return wide;
}

// The zip64 field of an entry's extra fields; empty if there is none.
absl::string_view Field64(absl::string_view extra) {
  while (extra.size() >= 4) {
    const uint16_t id = LoadAt<uint16_t>(extra, 0);
    const uint16_t size = LoadAt<uint16_t>(extra, 2);
    extra.remove_prefix(4);
    if (size > extra.size()) break;
    if (id == 1) return extra.substr(0, size);
    extra.remove_prefix(size);
  }
  return {};
}

// Where the bytes are that the entry at `at` of the directory is about.
absl::StatusOr<ZipEntry> FindBytes(absl::string_view archive, uint64_t at,
                                   absl::string_view extra) {
  const uint16_t flags = LoadAt<uint16_t>(archive, at + 8);
  const uint16_t method = LoadAt<uint16_t>(archive, at + 10);
  if ((flags & 1) != 0 || method != 0) {
    return absl::UnimplementedError("it is compressed or encrypted");
  }
  absl::string_view field = Field64(extra);
  // In this order.
  const auto size = Widened(LoadAt<uint32_t>(archive, at + 24), &field);
  const auto stored = Widened(LoadAt<uint32_t>(archive, at + 20), &field);
  const auto header = Widened(LoadAt<uint32_t>(archive, at + 42), &field);
  if (!size.has_value() || stored != size || !header.has_value() ||
      !HasMark(archive, *header, kLocalHeaderBytes, kLocalMark)) {
    return BadZip("its sizes or its place do not fit");
  }
  ZipEntry entry;
  entry.offset = *header + kLocalHeaderBytes +
                 LoadAt<uint16_t>(archive, *header + 26) +
                 LoadAt<uint16_t>(archive, *header + 28);
  entry.size_bytes = *size;
  if (entry.offset > archive.size() ||
      entry.size_bytes > archive.size() - entry.offset) {
    return absl::DataLossError(
        absl::StrCat("its ", entry.size_bytes, " bytes at ", entry.offset,
                     " reach past the archive's ", archive.size()));
  }
  return entry;
}

}  // namespace

absl::StatusOr<std::map<std::string, ZipEntry>> ParseZip(
    absl::string_view archive) {
  NACRE_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(archive));
  std::map<std::string, ZipEntry> entries;
  uint64_t at = directory.offset;
  for (uint64_t i = 0; i < directory.count; ++i) {
    if (!HasMark(archive, at, kDirectoryEntryBytes, kDirectoryMark)) {
      return BadZip("its directory ends early");
    }
    const size_t name_bytes = LoadAt<uint16_t>(archive, at + 28);
    const size_t extra_bytes = LoadAt<uint16_t>(archive, at + 30);
    const size_t comment_bytes = LoadAt<uint16_t>(archive, at + 32);
    const size_t more = name_bytes + extra_bytes + comment_bytes;
    const uint64_t begin = at + kDirectoryEntryBytes;
    if (more > archive.size() - begin)
      return BadZip("its directory ends early");
    const std::string name(archive.substr(begin, name_bytes));
    const auto entry =
        FindBytes(archive, at, archive.substr(begin + name_bytes, extra_bytes));
    if (!entry.ok()) {
      return absl::Status(entry.status().code(),
                          absl::StrCat("file ", ShownEntry(name), ": ",
                                       entry.status().message()));
    }
    if (!entries.emplace(name, *entry).second) {
      return BadZip(absl::StrCat("file ", ShownEntry(name), " is in it twice"));
    }
    at = begin + more;
  }
  return entries;
}

}  // namespace nacre::model
