# The planted bugs (cmake/Mutants.cmake), each of which the protocol simulation
# must find. The kinds are those that were found in published systems: stale
# tails, off-by-one roll-backs, positions and histories, tokens beyond the end,
# repeated commits, lost closes.

# ------------------------------------------------------------ the target's state
nacre_mutant(tail_of_old_epoch speculation/target_session.cc
  [[tail.epoch < options_.epoch]] [[false]])
nacre_mutant_statement(stale_tail speculation/draft_buffer.cc
  [[  if (next > base && !tree_.Find(number_).has_value()) return Outcome::kStale;]]
  [[  if (next > base && !tree_.Find(number_).has_value()) {
    Tail fresh = tail;
    fresh.base_length = fresh.first_position = tree_.length();
    return AddChain(fresh, text);
  }]])
nacre_mutant_statement(stale_tail_by_one speculation/draft_buffer.cc
  [[  if (next > base && !tree_.Find(number_).has_value()) return Outcome::kStale;]]
  [[  if (next > base && !tree_.Find(number_).has_value()) {
    if (next > base + 1) return Outcome::kStale;
    Tail fresh = tail;
    fresh.base_length = fresh.first_position = tree_.length();
    return AddChain(fresh, text);
  }]])
nacre_mutant(rejected_tail_kept speculation/token_tree.cc
  [[walked == count ? root : kDropped]] [[root]])
nacre_mutant_statement(old_drafts_tail_kept speculation/draft_buffer.cc
  [[  tree_.Clear();
  best_path_.clear();]] [[]])
nacre_mutant(committed_tail_kept_by_one speculation/token_tree.cc
  [[walked == count ? root : kDropped]]
  [[walked == count ? nodes_[root].parent : kDropped]])
nacre_mutant(window_beyond_max_tokens speculation/target_session.cc
  [[text_.remaining() - 1]] [[text_.remaining()]])
nacre_mutant(one_token_too_many speculation/target_text.cc
  [[finish_ == FinishReason::kNone && remaining() <= 0]]
  [[finish_ == FinishReason::kNone && remaining() < 0]])
nacre_mutant_statement(tokens_behind_the_end speculation/target_session.cc
  [[if (finished()) break;]] [[]])
nacre_mutant(last_row_not_compared speculation/target_session.cc
  [[finished() && !has_row ? count - 1 : count]] [[count - 1]])

# ------------------------------------------------------------- the target's tree
nacre_mutant_statement(stale_child speculation/token_tree.cc
  [[  if (!parent.has_value()) return Outcome::kStale;
  if (parent->index.has_value()) return AddBelow(*parent->index, proposal);]]
  [[  if (!parent.has_value()) return AddBelow(kRoot, proposal);
  if (parent->index.has_value()) return AddBelow(*parent->index, proposal);]])
nacre_mutant(forward_parent speculation/draft_buffer.cc
  [=[proposal.parent = tail.parents[i]]=]
  [[proposal.parent = tail.parents[i] == 0 ? 0 : tail.parents[i] + 1]])
nacre_mutant(duplicate_sibling speculation/token_tree.cc
  [[Child(parent, proposal.token_id)]] [[absl::nullopt]])
nacre_mutant(late_nodes_not_adopted speculation/token_tree.cc
  [[Compare(parent->text_length, proposal, text)]] [[Outcome::kStale]])
nacre_mutant(branches_lost_beside_the_first speculation/token_tree.cc
  [[node.parent == root]] [[node.parent == root && kept == 0]])
nacre_mutant(wrong_root speculation/token_tree.cc
  [[Place{absl::nullopt, proposal.base_length}]]
  [[Place{absl::nullopt, length_}]])

# ----------------------------------------------------------- the target's engine
nacre_mutant(target_kv_too_long target_worker/step_verdicts.cc
  [[parts_.accounts->TruncateKv(session, schedule.kv_length())]]
  [[parts_.accounts->TruncateKv(session, schedule.kv_length() + 1)]])
nacre_mutant(target_kv_too_short target_worker/step_verdicts.cc
  [[parts_.accounts->TruncateKv(session, schedule.kv_length())]]
  [[parts_.accounts->TruncateKv(session, schedule.kv_length() - 1)]])
nacre_mutant(target_position_by_one target_worker/row_sampler.cc
  [[session.sampler.Sample(
          row_logits, base_length + session.row_depths[row], session.history)]]
  [[session.sampler.Sample(
          row_logits, base_length + session.row_depths[row] + 1,
          session.history)]])
nacre_mutant(target_device_draw_by_one target_worker/row_sampler.cc
  [[session.sampler.DeviceDraw(base_length + session.row_depths[row])]]
  [[session.sampler.DeviceDraw(base_length + session.row_depths[row] + 1)]])
nacre_mutant(row_without_its_parent speculation/target_step.cc
  [=[parent == TokenTree::kRoot ? 0 : rows_of_[parent]]=]
  [=[parent == TokenTree::kRoot || rows_of_[parent] == 0
         ? 0 : parents_[rows_of_[parent] - 1]]=])
nacre_mutant(row_deeper_than_the_plan speculation/step_rows.cc
  [[tree->Best(std::min(count, most), max_depth, nodes)]]
  [[tree->Best(std::min(count, most), max_depth + 1, nodes)]])
nacre_mutant(own_tree_beyond_its_slots speculation/target_session.cc
  [[std::min(options_.num_slots, TokenTree::kMaxLocal)]]
  [[TokenTree::kMaxLocal]])
nacre_mutant(row_walked_past_its_parent speculation/target_step.cc
  [=[parents_[i] == row && token_ids_[i] == token_id]=]
  [=[token_ids_[i] == token_id]=])
nacre_mutant(wrong_slot_kept target_worker/step_verdicts.cc
  [=[session.walked[i] - path - 1]=] [=[static_cast<int>(session.nodes.size()) - 1]=])
nacre_mutant_statement(path_kept_too_long target_worker/step_verdicts.cc
  [[parts_.accounts->TruncateKv(session, base_length + on_path);]] [[]])
nacre_mutant(node_position_by_one target_worker/step_planner.cc
  [[schedule.committed_length() - 1 + depth]]
  [[schedule.committed_length() + depth]])
nacre_mutant(node_behind_the_wrong_slot target_worker/step_planner.cc
  [[parent <= path ? model::kNoSlot : parent - path - 1]] [[model::kNoSlot]])
nacre_mutant_statement(target_history_keeps_tail target_worker/step_verdicts.cc
  [[session.history.Truncate(verdict.base_length);]] [[]])

# --------------------------------------------------------------- both engines
nacre_mutant_statement(close_forgotten worker/engine/session_table.cc
  [[outbox_->Common(session.stream).closed.push_back(session.id);
  Close(session);]] [[]])
nacre_mutant_statement(lost_stream_kept worker/engine/session_table.cc
  [[if (session->stream != stream || session->closing) continue;]] [[continue;]])
nacre_mutant_statement(cached_tokens_not_told worker/engine/session_accounts.cc
  [[outbox_->Common(session.stream)
      .cached.push_back({session.id, taken.positions});]] [[]])

# ------------------------------------------------------------- the draft's state
nacre_mutant(rejected_token_kept speculation/draft_session.cc
  [[tokens_.resize(position)]] [[tokens_.resize(position + 1)]])
nacre_mutant(tail_at_next_position speculation/draft_session.cc
  [[MakeTail(length() - 1)]] [[MakeTail(length())]])
nacre_mutant(base_by_one speculation/draft_session.cc
  [[tail.base_length = committed_length_]]
  [[tail.base_length = committed_length_ + 1]])
# A gate that is not told of a stop costs its timeout, and nothing else.
nacre_mutant(stop_notice_forgotten speculation/draft_session.cc
  [[blocked == StopMark::kNone]] [[true]])
nacre_mutant(stop_notice_not_repeated speculation/draft_session.cc
  [[holds || announced_base_ == committed_length_]] [[true]])
nacre_mutant(target_forgets_the_drafts_end speculation/draft_wait.cc
  [[stop_ != StopMark::kEnd]] [[true]])
nacre_mutant(accepted_counted_twice speculation/session_schedule.cc
  [[stats_.accepted += verdict.accepted]]
  [[stats_.accepted += 2 * verdict.accepted]])
nacre_mutant(draft_beyond_max_tokens speculation/draft_session.cc
  [[length() >= options_.max_length]] [[length() > options_.max_length]])

# ------------------------------------------------------------ the target's own drafts
nacre_mutant(another_clients_answers target_worker/suffix_memory.cc
  [[*open.suffixes]] [[TextOwner{1, 1}]])
nacre_mutant(prompts_remembered target_worker/suffix_memory.cc
  [[static_cast<size_t>(session.schedule.text().generated())]]
  [[session.schedule.committed().size()]])
nacre_mutant_statement(own_nodes_stay_beside_drafts speculation/target_session.cc
  [[buffer_.DropLocal();]] [[]])
nacre_mutant(own_tokens_are_the_drafts speculation/target_session.cc
  [[step_.IsOwn(row)]] [[false]])

nacre_mutant(heads_look_at_another_row target_worker/head_drafts.cc
  [[session.first_logits + session.walked.back()]] [[session.first_logits]])
nacre_mutant(heads_of_another_session target_worker/head_drafts.cc
  [[k * static_cast<size_t>(num_rows) + static_cast<size_t>(row)]]
  [[k * static_cast<size_t>(num_rows)]])
nacre_mutant(heads_the_request_does_not_want target_worker/head_drafts.cc
  [[!open.suffixes.has_value()]] [[false]])
nacre_mutant_statement(merged_below_another_parent speculation/head_draft.cc
  [[if (node.parent >= 0) node.parent = index[node.parent];]] [[]])

nacre_mutant(features_of_another_sessions_rows target_worker/feature_drafts.cc
  [[static_cast<int>(row)]] [[0]])
nacre_mutant(feature_row_fed_again target_worker/feature_drafts.cc
  [[static_cast<ptrdiff_t>(count)]]
  [[static_cast<ptrdiff_t>(left == 0
         ? count
         : count - static_cast<size_t>(parts_.drafter->feature_size()))]])
nacre_mutant_statement(pending_row_skipped target_worker/feature_drafts.cc
  [[  rows.features =
      absl::MakeConstSpan(draft.pending)
          .first(count * static_cast<size_t>(parts_.drafter->feature_size()));]]
  [[  rows.features =
      absl::MakeConstSpan(draft.pending)
          .last(count * static_cast<size_t>(parts_.drafter->feature_size()));]])
nacre_mutant_statement(fed_rows_stay_pending target_worker/feature_drafts.cc
  [[DropPending(*session, LeftByFeed(*session));]] [[]])
nacre_mutant(features_beside_their_own_token target_worker/feature_drafts.cc
  [[reads_kv_ ? 0 : 1]] [[0]])
nacre_mutant_statement(features_go_on_over_a_gap target_worker/feature_drafts.cc
  [[if (position != draft.next_position()) draft.Restart(position);]] [[]])
nacre_mutant(features_begin_anew_at_each_step target_worker/feature_drafts.cc
  [[position != draft.next_position()]] [[draft.num_pending == 0]])
nacre_mutant(kept_row_by_one target_worker/feature_drafts.cc
  [[next_position() - 1]] [[next_position()]])
nacre_mutant(kv_row_missing target_worker/feature_drafts.cc
  [[session.sequence->length() + 1]] [[session.sequence->length()]])
nacre_mutant(kv_row_before_the_targets target_worker/feature_drafts.cc
  [[session.sequence->length() + 1]] [[session.sequence->length() + 3]])
nacre_mutant(given_text_paid_for target_worker/feature_drafts.cc
  [[draft.fed_position() + 1 < draft.given_length]] [[false]])
nacre_mutant(prompts_features_paid_for target_worker/feature_drafts.cc
  [[session.prefill_rows > 0]] [[false]])
nacre_mutant_statement(kv_rows_at_the_texts_begin target_worker/feature_drafts.cc
  [[rows->first_position = session.ahead.features->first_position;]] [[]])
nacre_mutant_statement(kv_nodes_without_their_target target_worker/feature_drafts.cc
  [[AddTarget(*growing[i], &added);]] [[]])
nacre_mutant(kv_of_a_finished_session target_worker/feature_drafts.cc
  [[!session.schedule.finished()]] [[true]])
nacre_mutant(tree_of_another_session target_worker/feature_drafts.cc
  [[logits->subspan(i * vocab, vocab)]] [[logits->subspan(0, vocab)]])
nacre_mutant_statement(level_of_one_node target_worker/feature_drafts.cc
  [[      at += vocab;]] [[]])
nacre_mutant(drafters_node_below_the_text target_worker/feature_drafts.cc
  [[node.parent != GrownDraft::kRoot]] [[false]])
nacre_mutant(drafters_node_below_another target_worker/feature_drafts.cc
  [[std::find(draft.slots.begin(), draft.slots.end(), node.parent)]]
  [[std::find(draft.slots.begin(), draft.slots.end(), draft.slots.back())]])
nacre_mutant(drafters_node_position_by_one target_worker/feature_drafts.cc
  [[draft.tree.depth(index) - 1]] [[draft.tree.depth(index)]])
nacre_mutant_statement(slots_of_the_last_tree target_worker/feature_drafts.cc
  [[session.ahead.features->slots.clear();]] [[]])
nacre_mutant(too_few_slots_for_a_tree target_worker/feature_drafts.cc
  [[kRows * kMaxDepth]] [[kRows]])
nacre_mutant_statement(history_keeps_what_a_tree_said target_worker/feature_drafts.cc
  [[session.history.Truncate(length);]] [[]])
nacre_mutant_statement(tree_ranked_without_its_path target_worker/feature_drafts.cc
  [[for (const int32_t id : path) session.history.Push(id);]] [[]])
nacre_mutant(tree_ranked_at_its_root target_worker/feature_drafts.cc
  [[length + static_cast<int>(path.size())]] [[length]])
nacre_mutant(features_the_request_does_not_want target_worker/feature_drafts.cc
  [[!open.suffixes.has_value()]] [[false]])
nacre_mutant(tree_of_another_text speculation/grown_draft.cc
  [[length_ == static_cast<int>(text.size())]] [[true]])
nacre_mutant_statement(token_below_another_parent speculation/grown_draft.cc
  [[child.parent = node;]] [[child.parent = depth == 0 ? kRoot : 0;]])
nacre_mutant(tree_deeper_than_its_draft speculation/grown_draft.cc
  [[depth(i) < limits_.max_depth]] [[depth(i) <= limits_.max_depth]])

# ------------------------------------------------------------ the draft's engine
nacre_mutant(draft_kv_too_long draft_worker/engine_commands.cc
  [[accounts_.TruncateKv(session, kept)]] [[accounts_.TruncateKv(session, kept + 1)]])
nacre_mutant(draft_kv_too_short draft_worker/engine_commands.cc
  [[accounts_.TruncateKv(session, kept)]] [[accounts_.TruncateKv(session, kept - 1)]])
nacre_mutant_statement(draft_history_keeps_tail draft_worker/engine_commands.cc
  [[session.history.Truncate(std::min(kept, session.history.length()));]] [[]])
nacre_mutant(pointless_token_sent draft_worker/row_drafter.cc
  [[session.cut || !session.schedule.WantsStep()]]
  [[!session.schedule.WantsStep()]])
nacre_mutant(draft_position_by_one model/model_drafter.cc
  [[node.sampler->Rank(logits, position, *node.history, room)]]
  [[node.sampler->Rank(logits, position + 1, *node.history, room)]])
nacre_mutant(device_draw_by_one model/model_drafter.cc
  [[node.sampler->DeviceDraw(position)]]
  [[node.sampler->DeviceDraw(position + 1)]])

# --------------------------------------------------- what drafts read of targets
nacre_mutant(early_rows_not_held_back draft_worker/row_receiver.cc
  [[session->schedule.committed_length() - seen.rows->length()]]
  [[seen.num_early]])
nacre_mutant(held_back_by_one_less draft_worker/row_receiver.cc
  [[session->schedule.committed_length() - seen.rows->length()]]
  [[session->schedule.committed_length() + 1 - seen.rows->length()]])
nacre_mutant(horizon_by_one draft_worker/row_receiver.cc
  [[rows->length() + max_lag + 1]] [[rows->length() + max_lag + 2]])
nacre_mutant_statement(no_horizon_before_the_first_row draft_worker/row_receiver.cc
  [[session.schedule.SetHorizon(0);]] [[]])
nacre_mutant_statement(fed_before_the_first_row draft_worker/row_receiver.cc
  [[if (rows->empty()) return 0;]] [[]])
nacre_mutant(fed_as_it_comes_beyond_the_rows draft_worker/row_receiver.cc
  [[known == 0 && !waits && length + 1 < horizon() ? 1 : known]]
  [[waits ? known : std::numeric_limits<int>::max()]])
nacre_mutant(horizon_is_no_stop speculation/draft_session.cc
  [[length() >= horizon_]] [[false]])
nacre_mutant(rows_of_rejected_nodes_kept target_worker/text_rows.cc
  [=[session.walked[static_cast<size_t>(i)]]=] [[i]])
nacre_mutant(gap_in_rows_not_noticed draft_worker/row_receiver.cc
  [[seen.rows->length() + seen.num_early - tag.position]]
  [[std::max(0, seen.rows->length() + seen.num_early - tag.position)]])
nacre_mutant(rows_of_another_epoch_taken draft_worker/row_receiver.cc
  [[tag.epoch != it->second->schedule.epoch()]] [[false]])
nacre_mutant_statement(dropped_features_keep_their_place target_worker/feature_shelf.cc
  [[shelved->first = position;]] [[]])
nacre_mutant(features_of_another_draft target_worker/feature_shelf.cc
  [[wanted.draft_fingerprint != source_->draft_fingerprint()]] [[false]])

# -------------------------------------------------------------- the draft's tree
nacre_mutant_statement(drafts_slot_never_returned speculation/draft_tree.cc
  [[    if (place.has_value() && place->index.has_value()) {
      drafted_[kept++] = node;
    } else if (node.slot >= 0) {
      free_slots_.push_back(node.slot);
    }]]
  [[    if (place.has_value() && place->index.has_value()) {
      drafted_[kept] = node;
      ++kept;
    }]])
nacre_mutant(drafts_slot_reused_while_in_use speculation/draft_tree.cc
  [=[drafted_[kept++] = node]=]
  [=[(node.slot >= 0 ? free_slots_.push_back(node.slot) : void()),
  drafted_[kept++] = node]=])
nacre_mutant(drafts_slot_taken_twice speculation/draft_tree.cc
  [[free_slots_.pop_back()]] [[void()]])
nacre_mutant(drafts_wrong_slot_kept speculation/draft_tree.cc
  [[kept_slots_.push_back(node.slot)]] [[kept_slots_.push_back(node.slot ^ 1)]])
nacre_mutant(stale_child_of_the_draft speculation/draft_tree.cc
  [[parent == kNoIndex || !At(parent).is_in_step]] [[false]])
nacre_mutant(drafts_root_not_expanded_again speculation/draft_tree.cc
  [[goes_on ? At(node) : Drafted()]] [[At(node)]])
nacre_mutant(useful_step_given_up speculation/draft_tree.cc
  [=[is_below[i] && drafted_[i].is_in_step]=] [[false]])
nacre_mutant(drafts_path_kept_from_before draft_worker/engine_commands.cc
  [[session.sequence->KeepPath(length, tree.kept_slots())]]
  [[session.sequence->KeepPath(length - 1, tree.kept_slots())]])
nacre_mutant(drafts_kept_kv_too_long draft_worker/engine_commands.cc
  [[accounts_.TruncateKv(session, length)]]
  [[accounts_.TruncateKv(session, length + 1)]])
nacre_mutant(node_without_the_history_of_its_path draft_worker/step_planner.cc
  [=[path_ends[i] - path_begin]=] [=[size_t{0}]=])

nacre_mutant(chunk_end_idles_the_draft speculation/draft_session.cc
  [[policy_stop && options_.plan.waits_at_stop]] [[policy_stop]])

# --------------------------------------------------------------- the coordinator
nacre_mutant(verdict_applied_twice speculation/session_schedule.cc
  [[verdict.base_length != committed_length]]
  [[verdict.base_length > committed_length]])
nacre_mutant(tail_of_old_draft_relayed speculation/session_schedule.cc
  [[tail.epoch != epoch_]] [[false]])
nacre_mutant(commit_by_one speculation/session_schedule.cc
  [[commit->first_position = verdict.base_length]]
  [[commit->first_position = verdict.base_length + 1]])
nacre_mutant_statement(coordinator_forgets_close coordinator/dispatch/pairing.cc
  [[link(worker_id)->Close(session_id);]] [[]])

nacre_mutant_statement(drain_reserves_no_room coordinator/dispatch/relocator.cc
  [[pairing_.TakeTarget(session, target_id);
        moved.push_back(&session);]]
  [[state_.failover.Hold(session_id, &session.failover, "", state_.now_ns());]])
nacre_mutant(earlier_openings_verdict_taken coordinator/dispatch/event_router.cc
  [[IsOfEarlierOpening(event.session_id, target_id)]] [[false]])
nacre_mutant(full_target_is_no_target coordinator/dispatch/failover.cc
  [[(absl::IsInternal(status) && HasSoundTarget(*record))]]
  [[(absl::IsInternal(status) && EqualTarget(*record, {}) != 0)]])
nacre_mutant(requests_do_not_wait_for_targets coordinator/dispatch/placer.cc
  [[MayComeBack(request, now_ns)]] [[CheckReady(request).ok()]])
nacre_mutant(large_requests_are_passed_for_ever coordinator/dispatch/admission.cc
  [[started_.size() == kMaxPasses && place < *started_.begin()]] [[false]])
nacre_mutant_statement(no_target_is_kept_free coordinator/dispatch/request_queue.cc
  [[    queue_.AddTargetsFor(request, &kept);]] [[]])
nacre_mutant(others_pass_what_resumes coordinator/dispatch/admission.cc
  [[place < kFirstPlace]] [[false]])
nacre_mutant(what_resumes_comes_last coordinator/dispatch/request_queue.cc
  [[request.resume != nullptr]] [[false]])
nacre_mutant(any_kind_of_target_will_do coordinator/dispatch/placer.cc
  [[wanted.empty() || wanted == numerics_id]] [[true]])

# ------------------------------------------------------------- the ratio test
# The first five change the law of what is emitted and nothing else; the first
# two only where what was decided is lost with a target.
nacre_mutant(accepted_rows_held_back target_worker/step_verdicts.cc
  [[session.schedule.CommitAccepted()]] [[absl::nullopt]])
nacre_mutant(drafted_end_shows speculation/draft_session.cc
  [[options_.verification == Verification::kExact && ahead > 0]] [[ahead > 0]])
nacre_mutant(residual_is_the_targets_law speculation/ratio_test.cc
  [[std::max(p - q, 0.0)]] [[p]])
nacre_mutant(residual_by_the_tests_number speculation/ratio_test.cc
  [[Uniform(seed, position, NoisePurpose::kResidual)]]
  [[Uniform(seed, position, NoisePurpose::kAccept)]])
nacre_mutant(test_by_the_drafts_number speculation/ratio_test.cc
  [[Uniform(seed, position, NoisePurpose::kAccept) * q < p]]
  [[Uniform(seed, position, NoisePurpose::kDraft) * q < p]])
nacre_mutant(another_rows_distribution speculation/target_session.cc
  [[&step_.distribution(row + 1)]] [[&step_.distribution(1)]])
nacre_mutant(another_tails_token_judged speculation/target_session.cc
  [[buffer_.depth() <= window || step_.SharedWith(buffer_) < window]]
  [[buffer_.depth() <= window]])
nacre_mutant(malformed_distribution_taken speculation/draft_buffer.cc
  [[!IsValid(tail.distributions[i], tail.token_ids[i])]] [[false]])
nacre_mutant(last_row_by_one target_worker/row_sampler.cc
  [[session.schedule.committed_length() + row]]
  [[session.schedule.committed_length() + row + 1]])

# ------------------------------------------------------------ shared prefixes
nacre_mutant(drafted_tokens_shared draft_worker/draft_engine.cc
  [[session->shareable(drafter_->row_reader() != nullptr)]]
  [[session->schedule.tokens()]])
nacre_mutant(unfilled_block_shared model/block_sequence.cc
  [[std::min(static_cast<int>(token_ids.size()), length_)]]
  [[static_cast<int>(token_ids.size())]])
nacre_mutant_statement(taken_block_not_used model/block_sequence.cc
  [[block = shared->block;]] [[]])
nacre_mutant_statement(evicted_block_served model/block_pool.cc
  [[Evict(index);]] [[]])
nacre_mutant_statement(shared_block_freed model/block_pool.cc
  [[if (--block.uses > 0) continue;]] [[--block.uses;]])
nacre_mutant(prefix_without_its_beginning model/block_pool.cc
  [[block.parent = parent]]
  [[block.parent = kRoot]])

nacre_mutant(kept_without_its_beginning model/block_store.cc
  [[slots_.PublishAs(node, parent, token_ids, slot->blocks.front())]]
  [[slots_.PublishAs(node, BlockPool::kRoot, token_ids, slot->blocks.front())]])
nacre_mutant_statement(brought_block_not_loaded model/block_store.cc
  [[Load(found->block, block);]] [[]])
nacre_mutant_statement(brought_block_not_followed model/block_sequence.cc
  [[node_ = *brought;]] [[]])
nacre_mutant_statement(every_session_brings_as_much worker/engine/session_accounts.cc
  [[blocks_left_ -= taken.blocks;]] [[]])

# ------------------------------------------------------------- silent workers
nacre_mutant(half_open_connection_unnoticed coordinator/fleet/signs_of_life.cc
  [[std::min(std::max(attached_ns_, heartbeat_ns_), answer_ns_)]]
  [[std::max(std::max(attached_ns_, heartbeat_ns_), answer_ns_)]])
nacre_mutant(silent_worker_kept coordinator/fleet/signs_of_life.cc
  [[now_ns - silent_since_ns() >= timeout_ns]] [[false]])
nacre_mutant_statement(speaking_worker_lost coordinator/fleet/signs_of_life.cc
  [[heartbeat_ns_ = now_ns;]] [[]])
nacre_mutant_statement(lost_targets_sessions_stay coordinator/dispatch/relocator.cc
  [[state_.failover.Hold(
          session_id, &session.failover,
          absl::StrCat("target worker ", worker.info.address, " was lost"),
          state_.now_ns());]]
  [[]])

# ------------------------------------------------------------------- the wire
nacre_mutant_statement(position_not_sent wire/codec_parts.cc
  [[proto->set_first_position(static_cast<uint32_t>(tail.first_position));]]
  [[]])

# --------------------------------------------- several coordinators, one worker
nacre_mutant(granted_before_it_is_given_back worker/process/kv_grants.cc
  [[std::min(coordinator.share, coordinator.held + free)]]
  [[coordinator.share + 0 * free]])
nacre_mutant_statement(dead_coordinator_keeps_its_grant worker/process/kv_grants.cc
  [[  coordinators_.erase(std::remove_if(coordinators_.begin(), coordinators_.end(),
                                     [coordinator](const Coordinator& each) {
                                       return each.id == coordinator;
                                     }),
                      coordinators_.end());]] [[]])
nacre_mutant(answer_to_an_older_grant_counts worker/process/kv_grants.cc
  [[report.serial == found->serial && found->serial != 0]]
  [[found->serial != 0]])
nacre_mutant(smaller_grant_not_kept coordinator/fleet/kv_ledger.cc
  [[std::min(tokens, worker.capacity_tokens)]]
  [[std::max(worker.granted_tokens, std::min(tokens, worker.capacity_tokens))]])
nacre_mutant(reserved_twice coordinator/fleet/kv_ledger.cc
  [[worker.reserved_tokens += need]] [[worker.reserved_tokens += 2 * need]])
nacre_mutant(one_session_too_many coordinator/fleet/kv_ledger.cc
  [[worker.num_sessions >= worker.max_sessions]]
  [[worker.num_sessions > worker.max_sessions]])
nacre_mutant_statement(place_lost coordinator/fleet/kv_ledger.cc
  [[  --worker.num_sessions;]] [[]])
nacre_mutant_statement(place_free_before_close coordinator/fleet/fleet.cc
  [[  worker.sessions.erase(session_id);]]
  [[  worker.sessions.erase(session_id);
  if (worker.role == WorkerRole::kTarget) {
    ledger_.Release(worker_id, session_id);
  }]])
nacre_mutant(promises_not_told coordinator/dispatch/kv_reporter.cc
  [[state_.fleet.ledger().reserved_tokens(worker_id)]] [[int64_t{0}]])
nacre_mutant(grant_starts_nothing coordinator/dispatch/dispatcher.cc
  [[state_.fleet.SetGrant(worker_id, grant->serial, grant->tokens,
                              grant->other_sessions)]]
  [[(state_.fleet.SetGrant(worker_id, grant->serial, grant->tokens,
                          grant->other_sessions), false)]])
nacre_mutant(heartbeat_reaps_what_runs coordinator/dispatch/dispatcher.cc
  [[worker->sessions.InOrder()]] [[std::vector<uint64_t>()]])

# -------------------------------------------------- answers that go on elsewhere
nacre_mutant(goes_on_one_token_before coordinator/dispatch/session.cc
  [[request().resumed_ids()]]
  [[request().resumed_ids().first(
      std::max<size_t>(request().resumed_ids().size(), 1) - 1)]])
nacre_mutant_statement(told_from_one_token_before coordinator/dispatch/text_stream.cc
  [[AppendTokens({ids.begin(), ids.end()}, /*num_silent=*/0, &known);]]
  [[AppendTokens({ids.begin(), ids.end() - 1}, /*num_silent=*/0, &known);]])
nacre_mutant_statement(resumed_text_left_out coordinator/dispatch/text_stream.cc
  [[text_ = std::move(known.text);]] [[]])
nacre_mutant(ended_answer_goes_on coordinator/api/resume_parser.cc
  [[static_cast<int>(length) == spec->max_tokens]] [[false]])
