// Calibrations of length policies in a temporary folder, for tests.

#ifndef TESTS_DRAFT_WORKER_POLICY_FOLDER_H_
#define TESTS_DRAFT_WORKER_POLICY_FOLDER_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/json.h"
#include "model/safetensors_writer.h"

namespace nacre::testing {

struct NamedTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using NamedTensors = std::map<std::string, NamedTensor>;

// A tensor of one value everywhere.
inline NamedTensor Filled(std::vector<int64_t> shape, float value) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  return {std::move(shape), std::vector<float>(count, value)};
}

// disco: width 3; its sigmoid is 1 / (1 + e^-bias) whatever it reads.
inline NamedTensors DiscoTensors(float bias = 0.0f) {
  return {{"hidden.weight", Filled({3, 12}, 0.0f)},
          {"hidden.bias", Filled({3}, 0.0f)},
          {"output.weight", Filled({1, 3}, 0.0f)},
          {"output.bias", Filled({1}, bias)}};
}

// specdec++: "accepted" has the logit `bias` whatever it reads.
inline NamedTensors HeadTensors(int64_t size, int num_layers = 3,
                                bool all_layers = true, float bias = 0.0f) {
  NamedTensors tensors;
  for (int layer = 0; layer < (all_layers ? num_layers : 1); ++layer) {
    const std::string name = "model." + std::to_string(layer) + ".linear";
    tensors[name + ".weight"] = Filled({size, size}, 0.25f);
    tensors[name + ".bias"] = Filled({size}, -0.5f);
  }
  const std::string output = "model." + std::to_string(num_layers);
  tensors[output + ".weight"] = Filled({2, size}, 0.0f);
  tensors[output + ".bias"] = {{2}, {0.0f, bias}};
  return tensors;
}

inline NamedTensors CaliTsTensors(int64_t target_size, int64_t draft_size) {
  return {{"step_weights", Filled({10, target_size, target_size}, 0.5f)},
          {"mix", Filled({2, target_size + draft_size}, 0.5f)}};
}

class PolicyFolder {
 public:
  PolicyFolder() {
    std::string name = ::testing::TempDir() + "/nacre-policy-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~PolicyFolder() { std::filesystem::remove_all(path_); }
  PolicyFolder(const PolicyFolder&) = delete;
  PolicyFolder& operator=(const PolicyFolder&) = delete;

  const std::string& path() const { return path_; }

  void WriteText(const std::string& text) {
    std::ofstream(path_ + "/policy.json") << text;
  }
  void WriteJson(const std::string& policy, const std::string& draft,
                 const std::string& target,
                 const nlohmann::json& more = nlohmann::json::object()) {
    nlohmann::json json = {{"format", 1},
                           {"policy", policy},
                           {"draft_fingerprint", draft},
                           {"target_fingerprint", target}};
    json.update(more);
    WriteText(json.dump());
  }
  void WriteTensors(const NamedTensors& tensors) {
    std::vector<model::TensorSpec> specs;
    for (const auto& [name, tensor] : tensors) {
      specs.push_back({name, kernels::DType::kF32, tensor.shape});
    }
    auto writer =
        model::SafetensorsWriter::Create(path_ + "/policy.safetensors", specs);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const auto& [name, tensor] : tensors) {
      ASSERT_TRUE((*writer)
                      ->Append(tensor.values.data(),
                               tensor.values.size() * sizeof(float))
                      .ok());
    }
    ASSERT_TRUE((*writer)->Finish().ok());
  }

 private:
  std::string path_;
};

}  // namespace nacre::testing

#endif  // TESTS_DRAFT_WORKER_POLICY_FOLDER_H_
