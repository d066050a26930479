// A .safetensors file as its tensors, of any type, to be changed.

#ifndef TESTS_MODEL_QUANTIZED_RAW_CHECKPOINT_H_
#define TESTS_MODEL_QUANTIZED_RAW_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/json.h"
#include "model/safetensors.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::testing {

struct RawTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

inline RawTensors ReadRaw(const std::string& path) {
  const auto file = model::SafetensorsFile::Open(path);
  NACRE_CHECK(file.ok(), "a test file that cannot be read");
  RawTensors tensors;
  for (const auto& [name, entry] : (*file)->tensors()) {
    tensors[name] = {entry.dtype, entry.shape,
                     std::string((*file)->Bytes(entry))};
  }
  return tensors;
}

inline void WriteRaw(const RawTensors& tensors, const std::string& path) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data += tensor.bytes;
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  WriteFile(path,
            std::string(reinterpret_cast<const char*>(&size), 8) + text + data);
}

}  // namespace nacre::testing

#endif  // TESTS_MODEL_QUANTIZED_RAW_CHECKPOINT_H_
