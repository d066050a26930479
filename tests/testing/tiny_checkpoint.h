// Small random Hugging Face folders for tests, written with our own writer.
//
// Thread-safe: pure functions on distinct folders.

#ifndef TESTS_TESTING_TINY_CHECKPOINT_H_
#define TESTS_TESTING_TINY_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "kernels/dtype.h"

namespace nacre::testing {

// Awkward on purpose: nothing is a multiple of a vector or a block.
struct TinyCheckpoint {
  std::string architecture = "LlamaForCausalLM";
  int hidden_size = 52;
  int intermediate_size = 100;
  int num_hidden_layers = 2;
  int num_attention_heads = 6;
  int num_key_value_heads = 2;
  int head_dim = 10;
  int vocab_size = 101;
  int max_position_embeddings = 512;
  bool tie_word_embeddings = false;
  kernels::DType dtype = kernels::DType::kF32;
  uint64_t seed = 1;
};

// A fresh folder under the test's temporary directory, named after `name`.
std::string TestFolder(const std::string& name);

// Creates or replaces a file.
void WriteFile(const std::string& path, const std::string& text);
std::string ReadFile(const std::string& path);

// Writes config.json and model.safetensors into `dir`.
void WriteTinyCheckpoint(const TinyCheckpoint& shape, const std::string& dir);

}  // namespace nacre::testing

#endif  // TESTS_TESTING_TINY_CHECKPOINT_H_
