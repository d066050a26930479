#include "common/gguf/gguf_file.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/gguf/cursor.h"
#include "common/gguf/parts.h"
#include "common/status_macros.h"

namespace nacre::gguf {
namespace {

constexpr absl::string_view kMagic = "GGUF";
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
constexpr uint32_t kMaxDimensions = 4;
// Far above any published file; what is kept of each is some 100 bytes.
constexpr uint64_t kMaxPairs = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 16;

struct Header {
  uint64_t num_tensors = 0;
  uint64_t num_pairs = 0;
};

absl::StatusOr<Header> ParseHeader(Cursor* cursor) {
  NACRE_ASSIGN_OR_RETURN(const absl::string_view magic,
                         cursor->Take(kMagic.size(), "the magic number"));
  if (magic != kMagic) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it begins with ", Shown(magic), ", not \"GGUF\": no GGUF file"));
  }
  NACRE_ASSIGN_OR_RETURN(const uint32_t version,
                         cursor->Number<uint32_t>("the version"));
  if (version != 0 && (version & 0xFFFF) == 0) {
    return absl::UnimplementedError(
        "the file was written for big-endian machines, which is not supported");
  }
  if (version != 2 && version != 3) {
    return absl::UnimplementedError(absl::StrCat(
        "GGUF version ", version, " is not supported; supported: 2, 3"));
  }
  Header header;
  NACRE_ASSIGN_OR_RETURN(header.num_tensors,
                         cursor->Number<uint64_t>("the number of tensors"));
  NACRE_ASSIGN_OR_RETURN(header.num_pairs,
                         cursor->Number<uint64_t>("the number of pairs"));
  if (header.num_tensors > kMaxTensors || header.num_pairs > kMaxPairs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the header promises ", header.num_tensors, " tensors and ",
        header.num_pairs, " metadata pairs, the limits are ", kMaxTensors,
        " and ", kMaxPairs));
  }
  return header;
}

// What the file says of a tensor before the bytes begin.
struct Info {
  std::string name;
  Tensor tensor;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};

absl::Status ParseShape(Cursor* cursor, Info* info) {
  NACRE_ASSIGN_OR_RETURN(const uint32_t dimensions,
                         cursor->Number<uint32_t>("its number of dimensions"));
  if (dimensions < 1 || dimensions > kMaxDimensions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it has ", dimensions, " dimensions, expected 1 to ", kMaxDimensions));
  }
  for (uint32_t i = 0; i < dimensions; ++i) {
    NACRE_ASSIGN_OR_RETURN(const uint64_t size,
                           cursor->Number<uint64_t>("a dimension"));
    if (size < 1 || size > static_cast<uint64_t>(INT64_MAX)) {
      return absl::InvalidArgumentError(
          absl::StrCat("dimension ", i, " is ", size, ", expected 1 to 2^63"));
    }
    info->tensor.shape.push_back(static_cast<int64_t>(size));
  }
  std::reverse(info->tensor.shape.begin(), info->tensor.shape.end());
  return absl::OkStatus();
}

absl::Status SetSize(Info* info) {
  const TensorType& type = *info->tensor.type;
  const std::vector<int64_t>& shape = info->tensor.shape;
  const auto row = static_cast<uint64_t>(shape.back());
  if (row % type.block_elements != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows of ", row, " elements are no multiple of the ",
                     type.block_elements, " in a block of ", type.name));
  }
  uint64_t size = row / type.block_elements;
  bool fits = !__builtin_mul_overflow(size, type.block_bytes, &size);
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    fits = fits && !__builtin_mul_overflow(
                       size, static_cast<uint64_t>(shape[i]), &size);
  }
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shape [", absl::StrJoin(shape, ", "), "] overflows 64 bits"));
  }
  info->size_bytes = size;
  return absl::OkStatus();
}

absl::Status ParseInfo(Cursor* cursor, Info* info) {
  NACRE_RETURN_IF_ERROR(ParseShape(cursor, info));
  NACRE_ASSIGN_OR_RETURN(const uint32_t type,
                         cursor->Number<uint32_t>("its type"));
  info->tensor.type = FindTensorType(type);
  if (info->tensor.type == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("its type ", type, " is not known"));
  }
  NACRE_ASSIGN_OR_RETURN(info->offset, cursor->Number<uint64_t>("its offset"));
  return SetSize(info);
}

absl::Status OfTensor(absl::string_view name, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("tensor ", Shown(name), ": ",
                                                  status.message()));
}

absl::StatusOr<uint64_t> ReadAlignment(const Metadata& metadata) {
  constexpr char kKey[] = "general.alignment";
  NACRE_ASSIGN_OR_RETURN(const uint64_t alignment,
                         metadata.UnsignedOr(kKey, kDefaultAlignment));
  if (alignment == 0 || alignment > kMaxAlignment ||
      (alignment & (alignment - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata ", kKey, " is ", alignment,
                     ", expected a power of two up to ", kMaxAlignment));
  }
  return alignment;
}

absl::Status InFile(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

template <class T>
absl::StatusOr<T> InFile(const std::string& path, absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return InFile(path, result.status());
}

// Sizes are at most the file's here, so nothing overflows.
uint64_t Aligned(uint64_t position, uint64_t alignment) {
  return (position + alignment - 1) / alignment * alignment;
}

// Gives each tensor its bytes. As ggml does, expects each where the one before
// it ends, padded.
absl::Status Place(absl::string_view bytes, uint64_t data_begin,
                   uint64_t alignment, std::vector<Info>* infos) {
  const uint64_t data_bytes =
      data_begin < bytes.size() ? bytes.size() - data_begin : 0;
  uint64_t expected = 0;
  for (Info& info : *infos) {
    if (info.offset != expected) {
      return OfTensor(
          info.name, absl::InvalidArgumentError(absl::StrCat(
                         "its offset is ", info.offset, ", expected ", expected,
                         ", where the one before it ends")));
    }
    if (info.offset > data_bytes ||
        info.size_bytes > data_bytes - info.offset) {
      return OfTensor(info.name,
                      absl::DataLossError(absl::StrCat(
                          "its ", info.size_bytes, " bytes at ", info.offset,
                          " reach past the file's ", data_bytes,
                          " bytes of data: the file is truncated")));
    }
    info.tensor.bytes = bytes.substr(data_begin + info.offset, info.size_bytes);
    expected = Aligned(info.offset + info.size_bytes, alignment);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Contents> Parse(absl::string_view bytes) {
  Cursor cursor(bytes);
  NACRE_ASSIGN_OR_RETURN(const Header header, ParseHeader(&cursor));
  Contents contents;
  const uint64_t metadata_begin = cursor.position();
  NACRE_ASSIGN_OR_RETURN(contents.metadata,
                         Metadata::Parse(header.num_pairs, &cursor));
  contents.metadata_bytes = cursor.Since(metadata_begin);
  NACRE_ASSIGN_OR_RETURN(const uint64_t alignment,
                         ReadAlignment(contents.metadata));
  std::vector<Info> infos;
  for (uint64_t i = 0; i < header.num_tensors; ++i) {
    Info info;
    NACRE_ASSIGN_OR_RETURN(const absl::string_view name,
                           cursor.String("the name of a tensor"));
    info.name = std::string(name);
    NACRE_RETURN_IF_ERROR(OfTensor(name, ParseInfo(&cursor, &info)));
    infos.push_back(std::move(info));
  }
  NACRE_RETURN_IF_ERROR(
      Place(bytes, Aligned(cursor.position(), alignment), alignment, &infos));
  for (Info& info : infos) {
    if (!contents.tensors.emplace(info.name, std::move(info.tensor)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Shown(info.name), " is there twice"));
    }
  }
  return contents;
}

bool File::Is(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

absl::StatusOr<Contents> File::Map(const std::string& path) {
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file,
                         MappedFile::Open(path));
  NACRE_ASSIGN_OR_RETURN(Contents contents, InFile(path, Parse(file->bytes())));
  for (auto& [name, tensor] : contents.tensors) tensor.file = file.get();
  files_.push_back(std::move(file));
  return contents;
}

absl::Status File::OpenParts() {
  NACRE_ASSIGN_OR_RETURN(const PartOf part,
                         InFile(path_, ReadPartOf(contents_.metadata)));
  if (part.count == 1) return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(const std::string first,
                         InFile(path_, PartPath(path_, 0, part.count)));
  if (part.number != 0 || path_ != first) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": it is part ", part.number + 1, " of ",
                     part.count, "; name the first, ", first));
  }
  for (uint64_t i = 1; i < part.count; ++i) {
    NACRE_ASSIGN_OR_RETURN(const std::string path,
                           PartPath(path_, i, part.count));
    absl::StatusOr<Contents> later = Map(path);
    if (absl::IsNotFound(later.status())) {
      return absl::NotFoundError(
          absl::StrCat(path, ": part ", i + 1, " of ", part.count,
                       " is missing: ", later.status().message()));
    }
    NACRE_RETURN_IF_ERROR(later.status());
    NACRE_RETURN_IF_ERROR(
        InFile(path, AddPart(i, *std::move(later), &contents_)));
  }
  return InFile(path_, CheckAllAreThere(contents_));
}

absl::StatusOr<std::unique_ptr<File>> File::Open(const std::string& path) {
  std::unique_ptr<File> file(new File(path));
  NACRE_ASSIGN_OR_RETURN(file->contents_, file->Map(path));
  NACRE_RETURN_IF_ERROR(file->OpenParts());
  return file;
}

}  // namespace nacre::gguf
