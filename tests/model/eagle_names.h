// Names of the tensors of EAGLE drafts.

#ifndef TESTS_MODEL_EAGLE_NAMES_H_
#define TESTS_MODEL_EAGLE_NAMES_H_

#include <algorithm>
#include <string>
#include <vector>

namespace nacre::model {

using EagleNames = std::vector<std::string>;

inline EagleNames Layer(const std::string& prefix, bool is_third) {
  EagleNames names;
  for (const char* part :
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
        "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
        "post_attention_layernorm"}) {
    names.push_back(prefix + part + ".weight");
  }
  if (is_third) {
    names.push_back(prefix + "input_layernorm.weight");
    names.push_back(prefix + "hidden_norm.weight");
  }
  return names;
}

inline EagleNames Third(const std::string& prefix = "midlayer.") {
  EagleNames names = Layer(prefix, true);
  for (const char* name : {"fc.weight", "norm.weight", "lm_head.weight"}) {
    names.push_back(name);
  }
  return names;
}

inline EagleNames With(EagleNames names, const std::string& name) {
  names.push_back(name);
  return names;
}

inline EagleNames Without(EagleNames names, const std::string& name) {
  names.erase(std::find(names.begin(), names.end(), name));
  return names;
}

}  // namespace nacre::model

#endif  // TESTS_MODEL_EAGLE_NAMES_H_
