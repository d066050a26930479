// Any bytes as a GGUF file: refused or parsed, what is parsed lies inside the
// file, and config, tensors and vocabulary are made of it or refused. Tensors
// of a file of this size are decoded. From where the magic number comes again,
// the bytes are the file's second part.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/check.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/parts.h"
#include "kernels/dtype.h"
#include "model/gguf/gguf_config.h"
#include "model/gguf/gguf_tensors.h"
#include "tokenizer/gguf_tokenizer.h"

namespace {

void AddSecondPart(absl::string_view bytes, nacre::gguf::Contents* first) {
  (void)nacre::gguf::CheckAllAreThere(*first).ok();
  auto second = nacre::gguf::Parse(bytes);
  if (!second.ok()) return;
  const size_t tensors = first->tensors.size() + second->tensors.size();
  if (!nacre::gguf::AddPart(1, *std::move(second), first).ok()) return;
  NACRE_CHECK(first->tensors.size() == tensors, "a tensor is lost");
}

// Of a matrix: where its rows are, and what their blocks say.
void CheckBlocks(const nacre::model::StoredTensor& stored, const char* values) {
  const auto cols = static_cast<size_t>(stored.entry.shape[1]);
  std::vector<float> row(cols);
  for (size_t i = 0; i < stored.decoded_rows; ++i) {
    nacre::kernels::GroupedWeights(
        *stored.groups, stored.find_row(i),
        cols / static_cast<size_t>(stored.groups->block), row.data());
    const size_t bytes = cols * sizeof(float);
    NACRE_CHECK(std::memcmp(row.data(), values + i * bytes, bytes) == 0,
                "blocks that say other values");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t second = std::min(bytes.find("GGUF", 1), size);
  auto contents = nacre::gguf::Parse(bytes.substr(0, second));
  if (!contents.ok()) {
    NACRE_CHECK(!contents.status().message().empty(), "an error without words");
    return 0;
  }
  if (second < size) AddSecondPart(bytes.substr(second), &*contents);
  uint64_t total = 0;
  for (const auto& [name, tensor] : contents->tensors) {
    NACRE_CHECK(tensor.bytes.begin() >= bytes.begin() &&
                    tensor.bytes.end() <= bytes.end(),
                "a tensor outside the file");
    total += tensor.bytes.size();
  }
  NACRE_CHECK(total <= size, "tensors overlap");
  (void)nacre::tokenizer::ParseGgufTokenizer(contents->metadata).ok();
  const auto json = nacre::model::GgufConfigJson(*contents);
  if (!json.ok()) return 0;
  const auto config = nacre::model::ParseConfig(*json);
  if (!config.ok()) return 0;
  const auto tensors = nacre::model::GgufTensors(*contents, *config);
  if (!tensors.ok()) return 0;
  for (const auto& [name, stored] : *tensors) {
    if (!stored.decode) continue;
    size_t count = nacre::kernels::SizeOf(stored.dtype);
    for (const int64_t dimension : stored.entry.shape) {
      count *= static_cast<size_t>(dimension);
    }
    const auto values = std::make_unique<char[]>(count);
    stored.decode(0, stored.decoded_rows, values.get());
    if (stored.groups != nullptr) CheckBlocks(stored, values.get());
  }
  return 0;
}
