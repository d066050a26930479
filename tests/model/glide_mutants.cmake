# The bugs that are planted in a GliDe draft's forward (cmake/Mutants.cmake), each
# of which glide_mutants_test must find.

nacre_mutant_statement(queries_not_turned model/glide_model.cc
  [[  backend_->Rope(queries_.data(), rows, size, heads, head_dim,
                 views_.cos.data(), views_.sin.data());]] [[]])
nacre_mutant(layer_before model/glide_model.cc
  [[config_.taps[layer].layer]] [[config_.taps[layer].layer - 1]])
nacre_mutant_statement(normed_before_cross model/glide_model.cc
  [[  backend_->MatMul(a.attended->f32(), rows, *weights.q, queries_.data());]]
  [[  step_.runner()->Norm(a.attended->f32(), rows,
                       weights_.llama.layers[layer].mlp_norm, a.normed->f32());
  backend_->MatMul(a.normed->f32(), rows, *weights.q, queries_.data());]])
nacre_mutant(sees_its_own_position model/glide_model.cc
  [[std::min(position, target.length)]]
  [[std::min(position + 1, target.length)]])
nacre_mutant(all_of_the_target_is_there model/glide_model.cc
  [[std::min(position, target.length)]] [[position]])
nacre_mutant(rows_stand_where_the_draft_began model/glide_model.cc
  [[rows.first_position + rows.sequence->length()]]
  [[rows.sequence->length()]])
nacre_mutant(nodes_stand_where_the_draft_began model/glide_model.cc
  [[rows.first_position + node.position]] [[node.position]])
nacre_mutant(scores_not_scaled model/glide_model.cc
  [[1.0 / std::sqrt(double{1} * head_dim)]] [[1.0]])
nacre_mutant_statement(nothing_found_is_what_was_found model/glide_model.cc
  [[  found_.assign(queries_.size(), 0);]]
  [[  found_.resize(queries_.size(), 1.0f);]])
