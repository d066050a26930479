// Any bytes as a .safetensors file: refused or parsed, and what is parsed lies
// inside the file.

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/check.h"
#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tensors = nacre::model::ParseSafetensors(bytes);
  if (!tensors.ok()) {
    NACRE_CHECK(!tensors.status().message().empty(), "an error without words");
    return 0;
  }
  uint64_t total = 0;
  for (const auto& [name, entry] : *tensors) {
    NACRE_CHECK(entry.offset <= size && entry.size_bytes <= size - entry.offset,
                "a tensor outside the file");
    total += entry.size_bytes;
  }
  NACRE_CHECK(total <= size, "tensors overlap");
  return 0;
}
