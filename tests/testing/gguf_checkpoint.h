// A Hugging Face folder as the GGUF file that llama.cpp's converter makes of
// it, written anew from what the formats say.
//
// Pure functions.

#ifndef TESTS_TESTING_GGUF_CHECKPOINT_H_
#define TESTS_TESTING_GGUF_CHECKPOINT_H_

#include <string>

#include "model/config.h"
#include "tests/testing/gguf_writer.h"

namespace nacre::testing {

// Of a Hugging Face folder's tensor, the name in the file.
std::string GgufName(const std::string& name);

// A model's, without tensors.
gguf::GgufWriter GgufMetadata(const model::ModelConfig& config);

// Metadata and tensors, but no vocabulary. Matrices keep their type, vectors
// become F32. Of LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and
// Qwen3ForCausalLM.
gguf::GgufWriter GgufOfCheckpoint(const std::string& dir);

// The same with matrices in blocks of integers, mixed as in files of Q4_K_M:
// Q6_K for the embedding, the head, values and what is down, Q4_K for the
// others. Q8_0 where rows are no whole blocks of 256, F16 where they are none
// of 32.
gguf::GgufWriter QuantizedGgufOfCheckpoint(const std::string& dir);

}  // namespace nacre::testing

#endif  // TESTS_TESTING_GGUF_CHECKPOINT_H_
