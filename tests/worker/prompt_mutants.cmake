# The bugs that are planted in what decides how a position of a prompt is computed
# (cmake/Mutants.cmake), each of which prompt_mutants_emulated_test must find.

# Of a session that is opened again, in the middle of its answer.
nacre_mutant(prompt_replayed_by_our_kernels target_worker/open_session.cc
  [[open.prompt_length - 1]]
  [[static_cast<int>(open.token_ids.size()) > open.prompt_length
        ? 0
        : int{open.prompt_length} - 1]])
nacre_mutant(answer_replayed_by_the_library target_worker/open_session.cc
  [[open.prompt_length - 1]] [[static_cast<int>(open.token_ids.size()) - 1]])

nacre_mutant(blocks_told_apart_by_yes_or_no model/block_pool.cc
  [[std::clamp(prompt_positions - index * block_size_, 0, block_size_)]]
  [[prompt_positions > index * block_size_ ? 1 : 0]])
nacre_mutant(prefix_found_whatever_computed_it model/block_pool.cc
  [[Before(reservation.node,
               PromptPositionsOf(reservation.num_cached, prompt_positions))]]
  [[reservation.node]])
nacre_mutant(prompt_shared_as_an_answer model/block_sequence.cc
  [[blocks_->Publish(parent(), BlockOf(token_ids, shared_blocks_),
                             block_table_[static_cast<size_t>(shared_blocks_)])]]
  [[blocks_->Publish(node_, BlockOf(token_ids, shared_blocks_),
                             block_table_[static_cast<size_t>(shared_blocks_)])]])
nacre_mutant(answer_taken_over_as_a_prompt model/block_sequence.cc
  [[blocks_->TakePublished(parent(), ids)]]
  [[blocks_->TakePublished(node_, ids)]])
nacre_mutant(taken_over_as_the_next_block model/block_sequence.cc
  [[blocks_->TakePublished(parent(), ids)]]
  [[blocks_->TakePublished(
        BlockPool::Before(node_, blocks_->PromptPositionsOf(
                                     shared_blocks_ + 1, prompt_positions_)),
        ids)]])

# Another session's prompt was one token longer: the lengths are right.
nacre_mutant(one_row_more_taken_over model/block_sequence.cc
  [[blocks_->TakePublished(parent(), ids)]]
  [[blocks_->TakePublished(
        BlockPool::Before(node_, blocks_->PromptPositionsOf(
                                     shared_blocks_, prompt_positions_ + 1)),
        ids)]])

nacre_mutant(row_stands_where_its_chunk_begins kernels/cuda/cublas_prompts.cc
  [[(run.position + done) % kChunk]] [[done % kChunk]])
nacre_mutant_statement(rows_added_to_those_before kernels/cuda/cublas_prompts.cc
  [[runs_.assign(runs.begin(), runs.end());]]
  [[runs_.insert(runs_.end(), runs.begin(), runs.end());]])
nacre_mutant_statement(rows_kept_where_there_are_none
  kernels/cuda/cublas_prompts.cc
  [[runs_.assign(runs.begin(), runs.end());]]
  [[if (!runs.empty()) runs_.assign(runs.begin(), runs.end());]])
