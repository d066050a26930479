// Any text as a config.json of a model, of an EAGLE draft and of a GliDe draft,
// then as a generation_config.json: refused, or parsed into numbers that later
// code may rely on. Byte 1 or 2, which no JSON has, stands for 1000 arrays that
// begin or end there: a short text can be deep.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/check.h"
#include "common/json_fields.h"
#include "model/config.h"
#include "model/eagle_config.h"
#include "model/eagle_files.h"
#include "model/glide_config.h"
#include "model/language_model.h"
#include "model/rope.h"

namespace {

void ParseAsEagle(absl::string_view text) {
  const auto json = nacre::ParseJsonObject(text, "config.json");
  if (!json.ok()) return;
  nacre::model::ModelInfo target;
  target.vocab_size = 128;
  target.hidden_size = 64;
  target.num_layers = 8;
  nacre::model::EagleLayout layout;
  for (const bool is_third : {false, true}) {
    layout.is_third = is_third;
    const auto config = nacre::model::ParseEagleConfig(*json, layout, target);
    if (!config.ok()) continue;
    NACRE_CHECK(config->tap_size == target.hidden_size && !config->taps.empty(),
                "features that the target does not have");
    for (const nacre::model::FeatureTap& tap : config->taps) {
      NACRE_CHECK(tap.layer >= 0 && tap.layer <= target.num_layers,
                  "a layer that the target does not have");
    }
    NACRE_CHECK(config->llama.vocab_size > 0 && config->max_depth > 0,
                "a size that is not positive");
  }
}

void ParseAsGlide(absl::string_view text) {
  const auto json = nacre::ParseJsonObject(text, "config.json");
  if (!json.ok()) return;
  nacre::model::ModelInfo target;
  target.vocab_size = 128;
  target.num_layers = 2;
  nacre::kernels::KvLayer layers[2];
  for (nacre::kernels::KvLayer& layer : layers) {
    layer.num_kv_heads = 1;
    layer.head_dim = 16;
  }
  const auto config =
      nacre::model::ParseGlideConfig(*json, target, {layers, 4, true});
  if (!config.ok()) return;
  NACRE_CHECK(config->cross.q_size() == 64, "queries that fit no head");
  NACRE_CHECK(config->taps.size() <= 2 && config->max_depth > 0,
              "layers that the target does not have");
  NACRE_CHECK(config->llama.vocab_size == target.vocab_size,
              "another vocabulary");
}

std::string Unpacked(const uint8_t* data, size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == 1 || data[i] == 2) {
      text.append(1000, data[i] == 1 ? '[' : ']');
    } else {
      text.push_back(static_cast<char>(data[i]));
    }
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = Unpacked(data, size);
  const auto config = nacre::model::ParseConfig(text);
  if (config.ok()) {
    NACRE_CHECK(config->hidden_size > 0 && config->intermediate_size > 0 &&
                    config->num_hidden_layers > 0 && config->vocab_size > 0,
                "a size that is not positive");
    NACRE_CHECK(config->num_attention_heads % config->num_key_value_heads == 0,
                "heads that do not divide");
    for (const int32_t id : config->eos_token_ids) {
      NACRE_CHECK(id >= 0 && id < config->vocab_size, "eos out of range");
    }
    NACRE_CHECK(static_cast<int>(InverseFrequencies(*config).size()) * 2 ==
                    config->rotary_size(),
                "an odd share of a head");
    NACRE_CHECK(config->head_dim % 2 == 0, "an odd head");
  }
  ParseAsEagle(text);
  ParseAsGlide(text);
  nacre::model::ModelConfig other;
  other.vocab_size = 100;
  (void)nacre::model::ApplyGenerationConfig(text, &other);
  return 0;
}
