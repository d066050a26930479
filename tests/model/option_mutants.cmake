# The bugs that are planted in what is read of a config.json and in what is made of
# it (cmake/Mutants.cmake). option_mutants_test says which golden finds each.

nacre_mutant(sparse_step_ignored model/config.cc
  [[(i + 1) % step != 0]] [[false]])
nacre_mutant(sparse_step_from_the_first_layer model/config.cc
  [[(i + 1) % step]] [[i % step]])
nacre_mutant_statement(mlp_only_layers_ignored model/config.cc
  [[    dense[static_cast<size_t>(index)] = true;]] [[]])
nacre_mutant(no_window_beside_experts model/config.cc
  [[family.sliding_window == SlidingWindow::kAllIfEnabled]] [[false]])
nacre_mutant(layer_types_ignored model/config.cc
  [[!IsAbsent(json, "layer_types")]] [[false]])
nacre_mutant(max_window_layers_ignored model/config.cc
  [[IntOr(json, "max_window_layers", 28, 0, kMaxLayers)]]
  [[absl::StatusOr<int>(0)]])
nacre_mutant(window_pattern_ignored model/config.cc
  [[(i + 1) % pattern != 0]] [[(i + 1) % family.window_pattern != 0]])

nacre_mutant_statement(only_new_name_of_rope_type model/config_rope.cc
  [[  if (!rope.contains(field)) return Type::kDefault;]]
  [[if (!rope.contains("rope_type")) return Type::kDefault;]])
nacre_mutant(yarn_of_whole_context model/config_rope.cc
  [[IntOr(HolderOfOriginal(json, rope), "original_max_position_embeddings",
            config.max_position_embeddings, 1, kMaxContext)]]
  [[absl::StatusOr<int>(config.max_position_embeddings)]])
nacre_mutant(yarn_always_truncated model/config_rope.cc
  [[BoolOr(rope, "truncate", true)]] [[absl::StatusOr<bool>(true)]])
nacre_mutant_statement(yarn_attention_factor_ignored model/config_rope.cc
  [[  if (IsGiven(rope, "mscale") && IsGiven(rope, "mscale_all_dim")) {
    NACRE_ASSIGN_OR_RETURN(const double scale,
                           PositiveOr(rope, "mscale", 1.0, kMaxRopeNumber));
    NACRE_ASSIGN_OR_RETURN(const double all, PositiveOr(rope, "mscale_all_dim",
                                                        1.0, kMaxRopeNumber));
    magnitude = YarnMagnitude(scaling->factor, scale) /
                YarnMagnitude(scaling->factor, all);
  }
  NACRE_ASSIGN_OR_RETURN(
      scaling->magnitude,
      PositiveOr(rope, "attention_factor", magnitude, kMaxRopeNumber));]]
  [[scaling->magnitude = magnitude;]])
nacre_mutant(longrope_takes_other_list model/config_rope.cc
  [[is_long ? 1 : 0]] [[is_long ? 0 : 1]])
nacre_mutant(longrope_factor_ignored model/config_rope.cc
  [[PositiveOr(rope, "factor", ratio, kMaxRopeNumber)]]
  [[absl::StatusOr<double>(ratio)]])
nacre_mutant_statement(longrope_attention_factor_ignored model/config_rope.cc
  [[  const double magnitude =
      factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
  NACRE_ASSIGN_OR_RETURN(
      scaling->magnitude,
      PositiveOr(rope, "attention_factor", magnitude, kMaxRopeNumber));]]
  [[  scaling->magnitude =
      factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));]])
nacre_mutant(old_name_of_theta_ignored model/config_rope.cc
  [[family.fields.rope_theta]] [["rope_theta"]])
nacre_mutant(old_name_of_share_ignored model/config_rope.cc
  [[family.fields.rotary_share]] [["partial_rotary_factor"]])
nacre_mutant(local_theta_ignored model/config_rope.cc
  [["rope_local_base_freq"]] [["none"]])

nacre_mutant_statement(local_layers_scaled model/rope.cc
  [[    used.rope.scaling = {};]] [[]])
nacre_mutant(odd_share_rounded_up model/rope.cc
  [[static_cast<float>(2 * j) / static_cast<float>(size)]]
  [[static_cast<float>(2 * j) / static_cast<float>(2 * config.rotary_pairs())]])
nacre_mutant(odd_share_rounded_down model/qkv_rows.cc
  [[config.rotary_pairs()]] [[config.rotary_size() / 2]])

nacre_mutant(other_form_of_gelu model/layer_runner.cc
  [[config_.activation == Activation::kGelu
]] [[config_.activation != Activation::kGelu
]])
nacre_mutant_statement(gated_gelu_by_erf model/layer_runner.cc
  [[      backend_->GeluMul(a.gate_up->f32(), rows, inter, a.mlp->f32());]]
  [[      for (int row = 0; row < rows; ++row) {
        const float* const gate = a.gate_up->f32() + size_t{2} * row * inter;
        float* const out = a.mlp->f32() + size_t{1} * row * inter;
        std::copy(gate, gate + inter, out);
        backend_->Gelu(out, 1, inter, kernels::GeluForm::kErf);
        for (int j = 0; j < inter; ++j) out[j] *= gate[inter + j];
      }]])
