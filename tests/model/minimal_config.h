// A config.json with the fields that a Llama must have.

#ifndef TESTS_MODEL_MINIMAL_CONFIG_H_
#define TESTS_MODEL_MINIMAL_CONFIG_H_

#include "common/json.h"

namespace nacre::model {

inline nlohmann::json MinimalConfig() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 96},
          {"intermediate_size", 100},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 6},
          {"vocab_size", 301}};
}

}  // namespace nacre::model

#endif  // TESTS_MODEL_MINIMAL_CONFIG_H_
