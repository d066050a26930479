// Any bytes as a file of torch.save, and as the pickle in it: refused or
// parsed, and what is parsed lies inside the file.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/check.h"
#include "model/pickle/pickle.h"
#include "model/pickle/torch_tensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tensors = nacre::model::ParseTorchFile(bytes);
  if (tensors.ok()) {
    for (const auto& [name, entry] : *tensors) {
      NACRE_CHECK(
          entry.offset <= size && entry.size_bytes <= size - entry.offset,
          "a tensor outside the file");
    }
  } else {
    NACRE_CHECK(!tensors.status().message().empty(), "an error without words");
  }
  const std::vector<absl::string_view> globals = {"collections OrderedDict",
                                                  "a b"};
  const auto pickle = nacre::model::Pickle::Parse(bytes, globals);
  if (!pickle.ok()) return 0;
  for (const nacre::model::PickleValue* item : (*pickle)->root().items) {
    NACRE_CHECK(item != nullptr, "a value that is not there");
  }
  return 0;
}
