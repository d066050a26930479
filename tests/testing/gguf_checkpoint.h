// A Hugging Face folder as the GGUF file that llama.cpp's converter makes of
// it, written anew from what the formats say.
//
// Pure functions.

#ifndef TESTS_TESTING_GGUF_CHECKPOINT_H_
#define TESTS_TESTING_GGUF_CHECKPOINT_H_

#include <string>

#include "tests/testing/gguf_writer.h"

namespace nacre::testing {

// Metadata and tensors, but no vocabulary. Matrices keep their type, vectors
// become F32. Of LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and
// Qwen3ForCausalLM.
gguf::GgufWriter GgufOfCheckpoint(const std::string& dir);

}  // namespace nacre::testing

#endif  // TESTS_TESTING_GGUF_CHECKPOINT_H_
