// A checkpoint's file with further tensors.

#ifndef TESTS_MODEL_WITH_TENSORS_H_
#define TESTS_MODEL_WITH_TENSORS_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/check.h"
#include "kernels/dtype.h"
#include "model/checkpoint.h"
#include "model/safetensors_writer.h"

namespace nacre::model {

struct FurtherTensor {
  kernels::DType dtype = kernels::DType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;  // empty: zeros
};

// Rewrites model.safetensors of `dir`. One of a name that is there already
// takes its place.
inline void AddTensors(const std::string& dir,
                       std::map<std::string, FurtherTensor> tensors) {
  const std::string path = dir + "/model.safetensors";
  {
    const auto old = Checkpoint::OpenFile(path);
    NACRE_CHECK(old.ok(), "a test checkpoint cannot be read");
    for (const std::string& name : (*old)->Names()) {
      const Tensor tensor = *(*old)->Find(name);
      tensors.try_emplace(name, FurtherTensor{tensor.dtype, tensor.shape,
                                              std::string(tensor.bytes)});
    }
  }
  std::vector<TensorSpec> specs;
  for (auto& [name, tensor] : tensors) {
    size_t bytes = kernels::SizeOf(tensor.dtype);
    for (const int64_t size : tensor.shape) bytes *= static_cast<size_t>(size);
    tensor.bytes.resize(bytes);
    specs.push_back({name, tensor.dtype, tensor.shape});
  }
  const std::string other = path + ".new";
  auto writer = SafetensorsWriter::Create(other, specs);
  NACRE_CHECK(writer.ok(), "a test checkpoint cannot be written");
  for (const auto& [name, tensor] : tensors) {
    NACRE_CHECK(
        (*writer)->Append(tensor.bytes.data(), tensor.bytes.size()).ok(),
        "a test checkpoint cannot be written");
  }
  NACRE_CHECK((*writer)->Finish().ok(), "a test checkpoint cannot be written");
  std::filesystem::rename(other, path);
}

}  // namespace nacre::model

#endif  // TESTS_MODEL_WITH_TENSORS_H_
