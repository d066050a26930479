# The bugs that are planted in a GliDe draft's forward (cmake/Mutants.cmake), each
# of which glide_mutants_test must find.

nacre_mutant_statement(queries_not_turned model/cross_attention.cc
  [[  backend_->Rope(queries_.data(), rows, size, heads, head_dim, sent_cos_.data(),
                 sent_sin_.data());]] [[]])
nacre_mutant(layer_before model/glide_model.cc
  [[config_.taps[i].layer]] [[config_.taps[i].layer - 1]])
nacre_mutant_statement(normed_before_cross model/cross_attention.cc
  [[  backend_->MatMul(a.attended->f32(), rows, *weights.q, queries_.data());]]
  [[  const std::vector<float> ones(static_cast<size_t>(hidden_size), 1.0f);
  backend_->RmsNorm(a.attended->f32(), rows, hidden_size, ones.data(), 1e-5f,
                    a.normed->f32());
  backend_->MatMul(a.normed->f32(), rows, *weights.q, queries_.data());]])
nacre_mutant(sees_its_own_position model/cross_attention.cc
  [[std::min(position, target.length)]]
  [[std::min(position + 1, target.length)]])
nacre_mutant(all_of_the_target_is_there model/cross_attention.cc
  [[std::min(position, target.length)]] [[position]])
nacre_mutant(rows_stand_where_the_draft_began model/glide_model.cc
  [[rows.first_position + rows.sequence->length()]]
  [[rows.sequence->length()]])
nacre_mutant(nodes_stand_where_the_draft_began model/glide_model.cc
  [[rows.first_position + node.position]] [[node.position]])
nacre_mutant(scores_not_scaled model/cross_attention.cc
  [[1.0 / std::sqrt(double{1} * head_dim)]] [[1.0]])
nacre_mutant_statement(nothing_found_is_what_was_found model/cross_attention.cc
  [[    zeros_.resize((end - row) * width, 0);]]
  [[    zeros_.assign((end - row) * width, 1.0f);]])
