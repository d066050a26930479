// Each bug planted in what is read of a config.json (option_mutants.cmake)
// takes the logits of the goldens named here further from Hugging Face's than
// family_options_test allows. Without one they are near.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/model/named_backend.h"
#include "tests/model/option_goldens.h"
#include "tests/testing/mutant.h"

namespace nacre::model {
namespace {

const std::map<std::string, std::vector<std::string>>& GoldensThatFind() {
  static const auto& goldens =
      *new std::map<std::string, std::vector<std::string>>{
          {"sparse_step_ignored", {"qwen3_moe_sparse_step"}},
          {"sparse_step_from_the_first_layer", {"qwen3_moe_sparse_step"}},
          {"mlp_only_layers_ignored", {"qwen3_moe"}},
          {"no_window_beside_experts", {"qwen3_moe_sparse_step"}},
          {"layer_types_ignored", {"qwen3_layer_types", "gemma2_layer_types"}},
          {"max_window_layers_ignored", {"qwen2_max_window_layers"}},
          {"window_pattern_ignored", {"gemma3_pattern"}},
          {"only_new_name_of_rope_type", {"qwen2_yarn"}},
          {"yarn_of_whole_context", {"qwen2_yarn", "qwen2_yarn_untruncated"}},
          {"yarn_always_truncated", {"qwen2_yarn_untruncated"}},
          {"yarn_attention_factor_ignored", {"qwen2_yarn_untruncated"}},
          {"longrope_takes_other_list",
           {"llama_longrope", "llama_longrope_short"}},
          {"longrope_factor_ignored", {"llama_longrope"}},
          {"longrope_attention_factor_ignored", {"llama_longrope_short"}},
          {"old_name_of_theta_ignored", {"neox_rotary_pct"}},
          {"old_name_of_share_ignored", {"neox_rotary_pct"}},
          {"local_theta_ignored", {"gemma3_pattern"}},
          {"local_layers_scaled", {"gemma3", "gemma3_pattern"}},
          {"odd_share_rounded_up", {"neox_rotary_odd"}},
          {"odd_share_rounded_down", {"neox_rotary_odd"}},
          {"other_form_of_gelu", {"neox", "neox_sequential"}},
          {"gated_gelu_by_erf", {"gemma", "gemma_hidden_act"}},
      };
  return goldens;
}

// Of the rows of all prompts in one batch.
float LargestDifference(const OptionGolden& golden, kernels::Backend* backend) {
  const auto rows = RowsOfAll(LoadOption(golden, backend).get(), golden);
  absl::Span<const OptionRow> left = rows;
  float largest = 0;
  for (const OptionPrompt& prompt : golden.prompts) {
    const size_t count = prompt.token_ids.size();
    const float difference = DifferenceOf(left.first(count), prompt);
    if (!(difference <= largest)) largest = difference;
    left.remove_prefix(count);
  }
  return largest;
}

// Of float32.
constexpr float kTolerance = 1e-4f;

TEST(OptionMutantsTest, EachIsFound) {
  const auto backend = NamedBackend("cpu");
  std::map<std::string, OptionGolden> goldens;
  for (OptionGolden& golden : ReadOptionGoldens()) {
    goldens[golden.name] = std::move(golden);
  }
  const std::vector<std::string> mutants = absl::StrSplit(NACRE_MUTANTS, ',');
  EXPECT_EQ(mutants.size(), GoldensThatFind().size());
  for (const std::string& mutant : mutants) {
    ASSERT_EQ(GoldensThatFind().count(mutant), 1u) << mutant;
    for (const std::string& name : GoldensThatFind().at(mutant)) {
      ASSERT_EQ(goldens.count(name), 1u) << name;
      const OptionGolden& golden = goldens.at(name);
      EXPECT_LE(LargestDifference(golden, backend.get()), kTolerance) << name;
      active_mutant = mutant;
      const float found = LargestDifference(golden, backend.get());
      active_mutant = {};
      // A difference that is no number is found, too.
      EXPECT_FALSE(found <= kTolerance)
          << mutant << " by " << name << ": " << found;
      RecordProperty(mutant + "_" + name, std::to_string(found));
    }
  }
}

}  // namespace
}  // namespace nacre::model
