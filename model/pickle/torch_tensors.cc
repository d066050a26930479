#include "model/pickle/torch_tensors.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/json_fields.h"
#include "common/status_macros.h"
#include "model/pickle/pickle.h"
#include "model/pickle/zip_entries.h"

namespace nacre::model {
namespace {

using Kind = PickleValue::Kind;

constexpr uint64_t kMaxPickleBytes = uint64_t{64} << 20;
constexpr size_t kMaxTensorDimensions = 16;
// How often tensors may have a file's bytes: tied weights have them twice.
constexpr uint64_t kMaxSharing = 8;
constexpr char kDataFile[] = "/data.pkl";
constexpr absl::string_view kRebuildTensor = "torch._utils _rebuild_tensor_v2";
// Of types that have no storage of their own.
constexpr absl::string_view kRebuildOfType = "torch._utils _rebuild_tensor_v3";
constexpr absl::string_view kBytes = "torch.storage UntypedStorage";
constexpr absl::string_view kRebuildParameter =
    "torch._utils _rebuild_parameter";

struct ElementType {
  absl::string_view global;
  const char* dtype;  // of safetensors
  uint64_t element_bytes;
};

constexpr ElementType kStorageTypes[] = {
    {"torch HalfStorage", "F16", 2},  {"torch BFloat16Storage", "BF16", 2},
    {"torch FloatStorage", "F32", 4}, {"torch DoubleStorage", "F64", 8},
    {"torch LongStorage", "I64", 8},  {"torch IntStorage", "I32", 4},
    {"torch ShortStorage", "I16", 2}, {"torch CharStorage", "I8", 1},
    {"torch ByteStorage", "U8", 1},   {"torch BoolStorage", "BOOL", 1},
};

constexpr ElementType kTypes[] = {
    {"torch float8_e4m3fn", "F8_E4M3", 1},
    {"torch float8_e5m2", "F8_E5M2", 1},
    {"torch uint16", "U16", 2},
    {"torch uint32", "U32", 4},
    {"torch uint64", "U64", 8},
};

// The one of that name; null: none.
const ElementType* FindType(absl::Span<const ElementType> types,
                            const PickleValue& global) {
  if (global.kind != Kind::kGlobal) return nullptr;
  for (const ElementType& type : types) {
    if (type.global == global.text) return &type;
  }
  return nullptr;
}

std::vector<absl::string_view> KnownGlobals() {
  std::vector<absl::string_view> globals = {"collections OrderedDict",
                                            kRebuildTensor, kRebuildOfType,
                                            kRebuildParameter, kBytes};
  for (const ElementType& type : kStorageTypes) globals.push_back(type.global);
  for (const ElementType& type : kTypes) globals.push_back(type.global);
  return globals;
}

std::string ShownName(absl::string_view name) {
  return JsonText(Json(std::string(name.substr(0, 120))));
}

absl::Status NoTensor() {
  return absl::UnimplementedError("it is no tensor that torch.save wrote");
}

// The arguments of a call of `global`; null: it is something else.
const PickleValue* ArgumentsOf(const PickleValue& value,
                               absl::string_view global, size_t count) {
  if (value.kind != Kind::kCall || value.items[0]->text != global ||
      value.items[1]->items.size() < count) {
    return nullptr;
  }
  return value.items[1];
}

absl::StatusOr<std::vector<int64_t>> Numbers(const PickleValue& value) {
  if (value.kind != Kind::kSequence ||
      value.items.size() > kMaxTensorDimensions) {
    return NoTensor();
  }
  std::vector<int64_t> numbers;
  for (const PickleValue* item : value.items) {
    if (item->kind != Kind::kNumber || item->number < 0) return NoTensor();
    numbers.push_back(item->number);
  }
  return numbers;
}

// None, or a dictionary or a sequence of nothing.
bool IsNothing(const PickleValue& value) {
  const bool has_items =
      value.kind == Kind::kDict || value.kind == Kind::kSequence;
  return (has_items || value.kind == Kind::kOther) && value.items.empty();
}

class TorchFile {
 public:
  // `prefix` is the archive's folder.
  TorchFile(const std::map<std::string, ZipEntry>& files, std::string prefix)
      : files_(files), prefix_(std::move(prefix)) {}

  absl::StatusOr<TensorEntry> Tensor(const PickleValue& value) const {
    if (const auto* inner = ArgumentsOf(value, kRebuildParameter, 1)) {
      return Rebuilt(*inner->items[0]);
    }
    return Rebuilt(value);
  }

 private:
  struct Storage {
    const ElementType* type = nullptr;  // null: bytes
    uint64_t offset = 0;
    uint64_t size_bytes = 0;
  };

  // (storage, offset, sizes, strides, wants a gradient, hooks, metadata), with
  // the type before the metadata if the storage has none.
  absl::StatusOr<TensorEntry> Rebuilt(const PickleValue& value) const {
    constexpr size_t kType = 6;
    const PickleValue* const of_type =
        ArgumentsOf(value, kRebuildOfType, kType + 1);
    const PickleValue* const arguments =
        of_type != nullptr ? of_type : ArgumentsOf(value, kRebuildTensor, 4);
    if (arguments == nullptr) return NoTensor();
    const size_t metadata = of_type != nullptr ? kType + 1 : kType;
    // Bits that change values: "neg", "conj".
    if (arguments->items.size() > metadata &&
        !IsNothing(*arguments->items[metadata])) {
      return absl::UnimplementedError("it has metadata, which are not read");
    }
    NACRE_ASSIGN_OR_RETURN(const Storage storage,
                           FindStorage(*arguments->items[0]));
    const ElementType* type = storage.type;
    if ((type == nullptr) != (of_type != nullptr)) return NoTensor();
    if (of_type != nullptr) type = FindType(kTypes, *of_type->items[kType]);
    if (type == nullptr) return NoTensor();
    return Place(*arguments, storage, *type);
  }

  absl::StatusOr<TensorEntry> Place(const PickleValue& arguments,
                                    const Storage& storage,
                                    const ElementType& type) const {
    const PickleValue& first = *arguments.items[1];
    if (first.kind != Kind::kNumber || first.number < 0) return NoTensor();
    TensorEntry entry;
    entry.dtype = type.dtype;
    NACRE_ASSIGN_OR_RETURN(entry.shape, Numbers(*arguments.items[2]));
    NACRE_ASSIGN_OR_RETURN(const std::vector<int64_t> strides,
                           Numbers(*arguments.items[3]));
    NACRE_ASSIGN_OR_RETURN(const uint64_t count,
                           CountElements(entry.shape, strides));
    const auto begin = static_cast<uint64_t>(first.number);
    const uint64_t stored = storage.size_bytes / type.element_bytes;
    if (begin > stored || count > stored - begin) {
      return absl::InvalidArgumentError(
          absl::StrCat("its ", count, " elements from ", begin,
                       " on reach past the ", stored, " of its storage"));
    }
    entry.offset = storage.offset + begin * type.element_bytes;
    entry.size_bytes = count * type.element_bytes;
    return entry;
  }

  // An error unless they follow each other in memory.
  static absl::StatusOr<uint64_t> CountElements(
      const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
    if (strides.size() != shape.size()) return NoTensor();
    int64_t count = 1;
    bool is_plain = true;
    for (size_t i = shape.size(); i-- > 0;) {
      if (shape[i] != 1 && strides[i] != count) is_plain = false;
      if (__builtin_mul_overflow(count, shape[i], &count)) {
        return absl::InvalidArgumentError(
            absl::StrCat("shape ", ShapeString(shape), " overflows 64 bits"));
      }
    }
    if (is_plain || count == 0) return static_cast<uint64_t>(count);
    return absl::UnimplementedError(
        absl::StrCat("its strides are ", ShapeString(strides), " for shape ",
                     ShapeString(shape), ": it does not lie in one piece"));
  }

  // ("storage", type, key, device, count)
  absl::StatusOr<Storage> FindStorage(const PickleValue& value) const {
    if (value.kind != Kind::kPersistent) return NoTensor();
    const PickleValue& id = *value.items[0];
    if (id.kind != Kind::kSequence || id.items.size() != 5 ||
        id.items[0]->text != "storage" || id.items[1]->kind != Kind::kGlobal ||
        id.items[2]->kind != Kind::kText) {
      return NoTensor();
    }
    Storage storage;
    storage.type = FindType(kStorageTypes, *id.items[1]);
    if (storage.type == nullptr && id.items[1]->text != kBytes) {
      return NoTensor();
    }
    const absl::string_view key = id.items[2]->text;
    const auto file = files_.find(absl::StrCat(prefix_, "/data/", key));
    if (file == files_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "its storage ", ShownName(key), " is not in the archive"));
    }
    storage.offset = file->second.offset;
    storage.size_bytes = file->second.size_bytes;
    return storage;
  }

  const std::map<std::string, ZipEntry>& files_;
  const std::string prefix_;
};

absl::StatusOr<TensorTable> ReadTable(const PickleValue& root,
                                      const TorchFile& file,
                                      uint64_t file_bytes) {
  if (root.kind != Kind::kDict) {
    return absl::UnimplementedError(
        "the pickle holds something else than a dictionary of tensors");
  }
  TensorTable tensors;
  uint64_t rest = file_bytes * kMaxSharing;
  for (size_t i = 0; i + 1 < root.items.size(); i += 2) {
    if (root.items[i]->kind != Kind::kText) {
      return absl::UnimplementedError(
          "the pickle holds a dictionary whose keys are no names");
    }
    const std::string name(root.items[i]->text);
    absl::StatusOr<TensorEntry> entry = file.Tensor(*root.items[i + 1]);
    if (!entry.ok()) {
      return absl::Status(entry.status().code(),
                          absl::StrCat("tensor ", ShownName(name), ": ",
                                       entry.status().message()));
    }
    if (entry->size_bytes > rest) {
      return absl::InvalidArgumentError(
          absl::StrCat("its tensors have more than ", kMaxSharing,
                       " times the file's bytes: too many share theirs"));
    }
    rest -= entry->size_bytes;
    if (!tensors.emplace(name, *std::move(entry)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", ShownName(name), " is in the pickle twice"));
    }
  }
  return tensors;
}

}  // namespace

bool IsTorchFile(absl::string_view path) {
  return absl::EndsWith(path, ".bin") || absl::EndsWith(path, ".pt") ||
         absl::EndsWith(path, ".pth");
}

absl::StatusOr<TensorTable> ParseTorchFile(absl::string_view bytes) {
  if (!absl::StartsWith(bytes, "PK")) {
    return absl::UnimplementedError(
        "not a zip archive: files of PyTorch before 1.6 are not read");
  }
  NACRE_ASSIGN_OR_RETURN(const auto files, ParseZip(bytes));
  const std::pair<const std::string, ZipEntry>* data = nullptr;
  for (const auto& file : files) {
    if (!absl::EndsWith(file.first, kDataFile)) continue;
    if (data != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("the archive holds two pickles, ",
                       ShownName(data->first), " and ", ShownName(file.first)));
    }
    data = &file;
  }
  if (data == nullptr) {
    return absl::InvalidArgumentError("the archive holds no data.pkl");
  }
  if (data->second.size_bytes > kMaxPickleBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("its pickle has ", data->second.size_bytes,
                     " bytes, the limit is ", kMaxPickleBytes));
  }
  const std::string prefix(absl::StripSuffix(data->first, kDataFile));
  const auto order = files.find(absl::StrCat(prefix, "/byteorder"));
  if (order != files.end() &&
      bytes.substr(order->second.offset, order->second.size_bytes) !=
          "little") {
    return absl::UnimplementedError("its numbers are not little-endian");
  }
  const std::vector<absl::string_view> globals = KnownGlobals();
  NACRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Pickle> pickle,
      Pickle::Parse(bytes.substr(data->second.offset, data->second.size_bytes),
                    globals));
  return ReadTable(pickle->root(), TorchFile(files, prefix), bytes.size());
}

}  // namespace nacre::model
