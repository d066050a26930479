#include "model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/json_fields.h"
#include "common/status_macros.h"
#include "kernels/dtype.h"

namespace nacre::model {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors holds little-endian numbers");

constexpr uint64_t kLengthBytes = 8;
// The format's own limit on the header.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxDimensions = 16;

// Bytes of one element, 0 for a name that is not known.
uint64_t ElementBytes(absl::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") {
    return 2;
  }
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL" || dtype == "F8_E4M3" ||
      dtype == "F8_E5M2") {
    return 1;
  }
  return 0;
}

// Names come from the file: keep messages one short line of ASCII.
std::string Shown(absl::string_view name) {
  return JsonText(Json(std::string(name.substr(0, 120))));
}

// Notes a name that the outermost object has twice. The library's own way to
// look at a text while it becomes a value takes a time that grows with the
// square of the number of tensors.
class NameWatch : public Json::json_sax_t {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(Json::number_integer_t) override { return true; }
  bool number_unsigned(Json::number_unsigned_t) override { return true; }
  bool number_float(Json::number_float_t, const Json::string_t&) override {
    return true;
  }
  bool string(Json::string_t&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_object(size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool start_array(size_t) override { return Enter(); }
  bool end_array() override { return Leave(); }
  bool key(Json::string_t& name) override {
    if (depth_ == 1 && !names_.insert(name).second) repeated_ = name;
    return true;
  }
  bool parse_error(size_t, const std::string&,
                   const Json::exception&) override {
    return false;
  }

  const std::string& repeated() const { return repeated_; }

 private:
  bool Enter() {
    ++depth_;
    return true;
  }
  bool Leave() {
    --depth_;
    return true;
  }

  int depth_ = 0;
  absl::flat_hash_set<std::string> names_;
  std::string repeated_;
};

// Parses JSON, refusing a repeated key (the parser alone would keep the last).
absl::StatusOr<Json> ParseHeaderJson(absl::string_view text) {
  NACRE_RETURN_IF_ERROR(CheckJsonDepth(text, "the header"));
  NameWatch watch;
  Json json;
  if (Json::sax_parse(text.begin(), text.end(), &watch)) {
    json = Json::parse(text.begin(), text.end(), nullptr, false);
  }
  if (!json.is_object()) {
    return absl::InvalidArgumentError("the header is not a JSON object");
  }
  if (!watch.repeated().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the header names tensor ", Shown(watch.repeated()), " twice"));
  }
  return json;
}

// Product of the dimensions and `element_bytes`; INVALID_ARGUMENT on overflow.
absl::StatusOr<uint64_t> SizeBytes(const std::vector<int64_t>& shape,
                                   uint64_t element_bytes) {
  uint64_t size = element_bytes;
  for (const int64_t dimension : shape) {
    if (__builtin_mul_overflow(size, static_cast<uint64_t>(dimension), &size)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", ShapeString(shape), " overflows 64 bits"));
    }
  }
  return size;
}

absl::StatusOr<TensorEntry> ParseEntry(const Json& json, uint64_t data_bytes) {
  const auto bad = [](absl::string_view what) {
    return absl::InvalidArgumentError(what);
  };
  if (!json.is_object()) return bad("its entry is not an object");
  const auto dtype = json.find("dtype");
  const auto shape = json.find("shape");
  const auto offsets = json.find("data_offsets");
  if (dtype == json.end() || !dtype->is_string()) {
    return bad("dtype is missing or not a string");
  }
  if (shape == json.end() || !shape->is_array() ||
      shape->size() > kMaxDimensions) {
    return bad(absl::StrCat("shape is missing, not a list or longer than ",
                            kMaxDimensions));
  }
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned()) {
    return bad("data_offsets is missing or not two unsigned integers");
  }
  TensorEntry entry;
  entry.dtype = dtype->get<std::string>();
  const uint64_t element_bytes = ElementBytes(entry.dtype);
  if (element_bytes == 0) {
    return bad(absl::StrCat("dtype ", Shown(entry.dtype), " is not known"));
  }
  for (const Json& dimension : *shape) {
    if (!dimension.is_number_unsigned() ||
        dimension.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
      return bad("shape holds something that is not an unsigned integer");
    }
    entry.shape.push_back(dimension.get<int64_t>());
  }
  const uint64_t begin = (*offsets)[0].get<uint64_t>();
  const uint64_t end = (*offsets)[1].get<uint64_t>();
  if (begin > end) {
    return bad(absl::StrCat("data_offsets [", begin, ", ", end,
                            "] end before they begin"));
  }
  NACRE_ASSIGN_OR_RETURN(const uint64_t size,
                         SizeBytes(entry.shape, element_bytes));
  if (end - begin != size) {
    return bad(absl::StrCat("data_offsets [", begin, ", ", end, "] hold ",
                            end - begin, " bytes, but dtype ", entry.dtype,
                            " and shape ", ShapeString(entry.shape), " need ",
                            size));
  }
  if (end > data_bytes) {
    return absl::DataLossError(absl::StrCat(
        "data_offsets [", begin, ", ", end, "] reach past the file's ",
        data_bytes, " bytes of data: the file is truncated"));
  }
  entry.offset = begin;
  entry.size_bytes = size;
  return entry;
}

// The ranges, sorted, must follow each other from 0 to `data_bytes`.
absl::Status CheckTiling(const TensorTable& tensors, uint64_t data_bytes) {
  std::vector<std::pair<const TensorEntry*, absl::string_view>> order;
  for (const auto& [name, entry] : tensors) order.emplace_back(&entry, name);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::make_pair(a.first->offset, a.first->size_bytes) <
           std::make_pair(b.first->offset, b.first->size_bytes);
  });
  uint64_t expected = 0;
  for (const auto& [entry, name] : order) {
    if (entry->offset != expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Shown(name), " begins at ", entry->offset,
          entry->offset < expected ? ", inside the tensor before it, which ends"
                                   : ", after a hole; the one before it ends",
          " at ", expected));
    }
    expected += entry->size_bytes;
  }
  if (expected != data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file has ", data_bytes,
                     " bytes of data, its tensors cover ", expected));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ShapeString(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<TensorTable> ParseSafetensors(absl::string_view bytes) {
  if (bytes.size() < kLengthBytes) {
    return absl::DataLossError(
        absl::StrCat("the file has ", bytes.size(), " bytes, fewer than the ",
                     kLengthBytes, " of a safetensors header length"));
  }
  uint64_t header_bytes;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  if (header_bytes > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("header length ", header_bytes, " is over the limit of ",
                     kMaxHeaderBytes, ": not a safetensors file?"));
  }
  if (header_bytes > bytes.size() - kLengthBytes) {
    return absl::DataLossError(absl::StrCat(
        "header length ", header_bytes, " reaches past the file's ",
        bytes.size(), " bytes: the file is truncated"));
  }
  const uint64_t data_begin = kLengthBytes + header_bytes;
  const uint64_t data_bytes = bytes.size() - data_begin;
  NACRE_ASSIGN_OR_RETURN(const Json header, ParseHeaderJson(bytes.substr(
                                                kLengthBytes, header_bytes)));
  TensorTable tensors;
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") continue;
    absl::StatusOr<TensorEntry> entry = ParseEntry(json, data_bytes);
    if (!entry.ok()) {
      return absl::Status(
          entry.status().code(),
          absl::StrCat("tensor ", Shown(name), ": ", entry.status().message()));
    }
    tensors.emplace(name, *std::move(entry));
  }
  NACRE_RETURN_IF_ERROR(CheckTiling(tensors, data_bytes));
  for (auto& [name, entry] : tensors) entry.offset += data_begin;
  return tensors;
}

absl::StatusOr<std::vector<float>> ReadFloats(absl::string_view file,
                                              const TensorEntry& entry) {
  const bool is_f32 = entry.dtype == "F32";
  const bool is_bf16 = entry.dtype == "BF16";
  if (!is_f32 && !is_bf16 && entry.dtype != "F16") {
    return absl::UnimplementedError(absl::StrCat(
        "dtype ", entry.dtype, " is not supported; supported: BF16, F16, F32"));
  }
  const absl::string_view bytes = file.substr(entry.offset, entry.size_bytes);
  std::vector<float> values(bytes.size() / (is_f32 ? 4 : 2));
  if (is_f32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(bits), sizeof(bits));
    values[i] = is_bf16 ? kernels::FromBF16(bits) : kernels::FromF16(bits);
  }
  return values;
}

SafetensorsFile::SafetensorsFile(std::string path,
                                 std::unique_ptr<MappedFile> file,
                                 TensorTable tensors)
    : path_(std::move(path)),
      file_(std::move(file)),
      tensors_(std::move(tensors)) {}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(
    const std::string& path) {
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file,
                         MappedFile::Open(path));
  absl::StatusOr<TensorTable> tensors = ParseSafetensors(file->bytes());
  if (!tensors.ok()) {
    return absl::Status(tensors.status().code(),
                        absl::StrCat(path, ": ", tensors.status().message()));
  }
  return std::unique_ptr<SafetensorsFile>(
      new SafetensorsFile(path, std::move(file), *std::move(tensors)));
}

}  // namespace nacre::model
