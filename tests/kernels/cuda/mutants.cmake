# The bugs that are planted in CUDA source for the emulated device
# (cmake/Mutants.cmake), each of which model_cuda_mutants_emulated_test must
# find. Waits for the kernel before that come too late, of every kernel of
# Llama's steps in f32, bf16, int8, int4 and fp8: tests/model/cuda_overlap_test.cc.

# ----------------------------------------------------------------- missing waits
nacre_mutant_statement(skinny_ring_not_waited_for kernels/cuda/gemm_skinny.cuh
  [[      WaitCopies<kStages - 2>();]] [[]])
nacre_mutant_statement(skinny_lanes_not_waited_for kernels/cuda/gemm_skinny.cuh
  [[      __syncwarp();  // copies of all lanes are there, the last stage is read]]
  [[]])
nacre_mutant_statement(skinny_kernel_before_not_waited_for
  kernels/cuda/gemm_skinny.cuh [[  here.WaitForPrevious();]] [[]])
nacre_mutant_statement(tiled_stage_not_waited_for kernels/cuda/gemm_tiled.cuh
  [[    WaitCopies<kStages - 2>();]] [[]])
nacre_mutant(tiled_stage_refilled_too_early kernels/cuda/gemm_tiled.cuh
  [[stage == 0 ? kStages - 1 : stage - 1]] [[stage]])
nacre_mutant_statement(tiled_warps_not_waited_for kernels/cuda/gemm_tiled.cuh
  [[    __syncthreads();  // copies of all are there, the last stage is read]]
  [[]])
nacre_mutant_statement(tiled_kernel_before_not_waited_for
  kernels/cuda/gemm_tiled.cuh [[  WaitForPrevious();]] [[]])

nacre_mutant_statement(skinny_chains_not_waited_for kernels/cuda/gemm_skinny.cuh
  [[      here.Meet();  // sums of all chains are there]] [[]])
nacre_mutant_statement(skinny_group_not_waited_for kernels/cuda/gemm_skinny.cuh
  [[      GroupBarrier<kSkinnyGroupThreads>(warp.group);]] [[]])
nacre_mutant_statement(wide_stage_not_waited_for kernels/cuda/gemm_wide.cuh
  [[        WaitPhase(memory.full + stage, parity);]] [[]])
nacre_mutant_statement(wide_products_not_waited_for kernels/cuda/gemm_wide.cuh
  [[      WaitProducts<0>();]] [[]])
nacre_mutant_statement(wide_stage_free_too_early kernels/cuda/gemm_wide.cuh
  [[        release();
        held = stage;]]
  [[        held = stage;
        release();]])
nacre_mutant_statement(wide_free_stage_not_waited_for kernels/cuda/gemm_wide.cuh
  [[      WaitPhase(memory.free + stage, parity);]] [[]])
nacre_mutant_statement(wide_kernel_before_not_waited_for
  kernels/cuda/gemm_wide.cuh
  [[    WaitForPrevious();
    if (!copies) return;]]
  [[    if (!copies) return;]])
nacre_mutant_statement(attention_copies_not_waited_for
  kernels/cuda/attention_stream.cuh
  [[    WaitCopies<0>();
    block.Meet();  // the step is there, the one before is done with]]
  [[    block.Meet();  // the step is there, the one before is done with]])
nacre_mutant_statement(attention_places_not_waited_for
  kernels/cuda/attention_stream_block.cuh
  [[    places[Part() + lane] = place;
    __syncwarp();]]
  [[    places[Part() + lane] = place;]])
nacre_mutant_statement(attention_kernel_before_not_waited_for
  kernels/cuda/attention_stream.cuh
  [[  block.SharePlace(block.FindPlace(part, range.end));
  here.WarpWaitsForPrevious();]]
  [[  block.SharePlace(block.FindPlace(part, range.end));]])

nacre_mutant_statement(wide_attention_copies_not_waited_for
  kernels/cuda/attention_wide.cuh
  [[    WaitCopies<Block::kAhead>();]] [[]])
nacre_mutant_statement(wide_attention_copies_not_shown
  kernels/cuda/attention_wide.cuh
  [[    ShowToProducts();
    __syncwarp();]]
  [[    __syncwarp();]])
nacre_mutant_statement(wide_attention_queries_not_waited_for
  kernels/cuda/attention_wide.cuh
  [[    GroupBarrier<32 * Block::kGroupWarps>(block.Group());]] [[]])
nacre_mutant_statement(wide_attention_queries_not_shown
  kernels/cuda/attention_wide.cuh
  [[    for (int i = 0; i < Block::kKept; ++i) block.kept[i * 32] = {};
    ShowToProducts();]]
  [[    for (int i = 0; i < Block::kKept; ++i) block.kept[i * 32] = {};]])
nacre_mutant_statement(wide_attention_step_not_waited_for
  kernels/cuda/attention_wide.cuh
  [[    if (is_there) WaitPhase(block_.full + stage, step / kStages % 2);]] [[]])
nacre_mutant_statement(wide_attention_free_stage_not_waited_for
  kernels/cuda/attention_wide.cuh
  [[        WaitPhase(block.free + stage, (step / kStages + 1) % 2);]] [[]])
nacre_mutant_statement(wide_attention_stage_free_too_early
  kernels/cuda/attention_wide.cuh
  [[      Multiply(range, step + 1, multiplies);
      __syncwarp();  // all lanes have read the step
      if (block_.lane == 0) Arrive(block_.free + step % Block::kStages);]]
  [[      __syncwarp();
      if (block_.lane == 0) Arrive(block_.free + step % Block::kStages);
      Multiply(range, step + 1, multiplies);]])
nacre_mutant_statement(wide_attention_products_not_waited_for
  kernels/cuda/attention_wide.cuh [[    WaitProducts<0>();]] [[]])
nacre_mutant_statement(wide_attention_steps_of_a_warp
  kernels/cuda/attention_wide.cuh
  [[    queries_.first = span.first;
    queries_.last = span.last;]] [[]])
nacre_mutant_statement(wide_attention_kernel_before_not_waited_for
  kernels/cuda/attention_wide.cuh
  [[  block.SharePlace(block.FindPlace(part, range.end));
  WaitForPrevious();]]
  [[  block.SharePlace(block.FindPlace(part, range.end));]])
nacre_mutant_statement(wide_attention_places_not_waited_for
  kernels/cuda/attention_wide_block.cuh
  [[    if (lane < kPart) places[Part() + lane] = place;
    __syncwarp();]]
  [[    if (lane < kPart) places[Part() + lane] = place;]])

# ---------------------------------------------- the last block does what is left
nacre_mutant_statement(last_writes_behind_its_count kernels/cuda/last_block.cuh
  [[  __threadfence();  // our writes come before our count]] [[]])
nacre_mutant(last_leaves_its_count kernels/cuda/last_block.cuh
  [[atomicInc(counter, most) == most]] [[atomicInc(counter, most + 1) == most]])
nacre_mutant(last_is_the_first kernels/cuda/last_block.cuh
  [[atomicInc(counter, most) == most]] [[atomicInc(counter, most) == 0]])
nacre_mutant_statement(last_counts_before_all_have_written
  kernels/cuda/gemm_skinny.cuh
  [[  here.Meet();  // all sums are written, and the rings are not needed]]
  [[]])
nacre_mutant_statement(last_is_not_known_to_all kernels/cuda/gemm_skinny.cuh
  [[  here.Meet();  // all know]] [[]])
# From its own slice on.
nacre_mutant(last_adds_as_it_comes kernels/cuda/gemm_skinny_results.cuh
  [[__ldcg(first)]]
  [[__ldcg(first + blockIdx.x % slices * slice_elements)]])
nacre_mutant(last_adds_as_it_comes kernels/cuda/gemm_skinny_results.cuh
  [[first + slice * slice_elements]]
  [[first + (slice + blockIdx.x) % slices * slice_elements]])

# Of a pair, the slices of its first output twice; the place of one row for all.
nacre_mutant(last_adds_one_of_a_pair kernels/cuda/gemm_pairs.cuh
  [[SliceSum(product, parts + product.pairs_apart)]]
  [[SliceSum(product, parts)]])
nacre_mutant(last_stores_rows_in_one_place kernels/cuda/gemm_pairs.cuh
  [[to.FindPlace(row)]] [[to.FindPlace(0)]])
nacre_mutant(last_keeps_inputs_of_one_slice kernels/cuda/gemm_skinny_inputs.cuh
  [[slice * order.slice_blocks]] [[0 * order.slice_blocks]])

# -------------------------------------- kernels that do what others would after them
nacre_mutant_statement(fused_merge_leaves_single_splits
  kernels/cuda/attention_merge.cuh
  [[    if (d < head_dim) StoreRounded(args, at, args.out[at]);]] [[]])
nacre_mutant_statement(fused_merge_rounds_no_mean kernels/cuda/attention_merge.cuh
  [[StoreRounded(args, at, mean);]] [[StoreRounded(args, at, sum);]])
nacre_mutant(fused_norm_of_other_inputs kernels/cuda/gemm_skinny_inputs.cuh
  [[i % kBlockInputs / kVectorInputs]]
  [[(i + kVectorInputs) % kBlockInputs / kVectorInputs]])
nacre_mutant_statement(fused_norm_not_waited_for
  kernels/cuda/gemm_skinny_inputs.cuh
  [[    here.Meet();  // all rows are there]] [[]])
nacre_mutant(fused_pair_of_other_outputs kernels/cuda/gemm_pairs.cuh
  [[pair + kPairs]] [[(pair + 1) % kPairs + kPairs]])
nacre_mutant(fused_scale_of_the_other kernels/cuda/gemm_pairs.cuh
  [=[product.row_scales[column + product.pairs_apart]]=]
  [=[product.row_scales[column]]=])
nacre_mutant(fused_gate_is_up kernels/cuda/gemm_pairs.cuh
  [[Gated(sums.x, sums.y)]] [[Gated(sums.y, sums.x)]])
nacre_mutant(fused_gates_of_rows_apart kernels/cuda/gemm_pairs.cuh
  [[static_cast<size_t>(row) * product.pairs_apart + column]]
  [[static_cast<size_t>(row) * product.outputs + column]])
nacre_mutant(fused_bias_left_out kernels/cuda/gemm_pairs.cuh
  [[of.bias != nullptr]] [[false]])
nacre_mutant(fused_bias_of_the_other kernels/cuda/gemm_pairs.cuh
  [=[of.bias[column + half]]=] [=[of.bias[column]]=])
nacre_mutant(fused_angles_of_another_row kernels/cuda/gemm_pairs.cuh
  [[static_cast<size_t>(row) * half + j]] [[static_cast<size_t>(j)]])
nacre_mutant(fused_keys_not_turned kernels/cuda/gemm_pairs.cuh
  [[cache.StoreKey(j, turned.first)]] [[cache.StoreKey(j, sums.x)]])
nacre_mutant(fused_values_of_another_head kernels/cuda/gemm_pairs.cuh
  [[kv_head - of.kv.num_kv_heads]] [[2 * of.kv.num_kv_heads - 1 - kv_head]])
nacre_mutant(fused_place_of_another_row kernels/cuda/gemm_pairs.cuh
  [[to.FindPlace(row < product.rows ? row : 0)]] [[to.FindPlace(0)]])

# -------------------------------------------------------- phases of one kernel
nacre_mutant_statement(persistent_phase_before_not_waited_for
  kernels/cuda/phase_block.cuh [[    if (threadIdx.x == 0) Wait();]] [[]])
nacre_mutant_statement(persistent_threads_not_told kernels/cuda/phase_block.cuh
  [[    Meet();  // all know]] [[]])
nacre_mutant_statement(persistent_warps_do_not_wait kernels/cuda/phase_block.cuh
  [[    if (threadIdx.x % 32 == 0) Wait();]] [[]])
nacre_mutant_statement(persistent_lanes_not_told kernels/cuda/phase_block.cuh
  [[    __syncwarp();]] [[]])
nacre_mutant_statement(persistent_phase_not_waited_for
  kernels/cuda/persistent.cu [[    WaitCopies<kPhaseSlots - 2>();]] [[]])
nacre_mutant_statement(persistent_phase_not_there_for_all
  kernels/cuda/persistent.cu
  [[    __syncthreads();  // the phase is there, the one before is done with]]
  [[]])
nacre_mutant(persistent_slot_refilled_too_early kernels/cuda/persistent.cu
  [[i + kPhaseSlots - 1]] [[i + kPhaseSlots]])
nacre_mutant_statement(persistent_counts_before_all_have_written
  kernels/cuda/persistent.cu
  [[      __syncthreads();  // all have written, and need no shared memory]] [[]])
nacre_mutant(persistent_counts_without_work kernels/cuda/persistent.cu
  [[first < blocks && threadIdx.x == 0]] [[threadIdx.x == 0]])
nacre_mutant(persistent_one_block_not_waited_for kernels/cuda/persistent.cu
  [[args.launch * workers]] [[args.launch * workers - 1]])
nacre_mutant(persistent_waits_for_blocks_without_work
  kernels/cuda/persistent.cu [[min(blocks, gridDim.x)]] [[gridDim.x]])

# --------------------------------------------------------------- wrong fragments
nacre_mutant(bf16_weights_of_other_lanes kernels/cuda/gemm_weights.cuh
  [[4 * half + 2 * step + lane / 16]] [[4 * half + 2 * step + lane % 2]])
nacre_mutant(rows_of_another_step kernels/cuda/gemm_wide_sums.cuh
  [[2 * half + i]] [[2 * i + half]])
nacre_mutant(sum_of_another_output kernels/cuda/gemm_tiled.cuh
  [[other * product.pairs_apart + lane / 4]]
  [[other * product.pairs_apart + lane % 8]])
nacre_mutant(values_of_another_dimension kernels/cuda/attention_stream_block.cuh
  [[(2 * pair + lane / 16) ^ row]] [[(2 * pair + lane / 8 % 2) ^ row]])
nacre_mutant(values_of_another_position kernels/cuda/attention_stream_block.cuh
  [[row / 2 * 8 + row % 2 * 4 + lane / 8 % 2]]
  [[row / 2 * 8 + row % 2 * 4 + lane / 16]])
nacre_mutant(wide_attention_rows_of_another_group
  kernels/cuda/attention_wide_block.cuh
  [[position / 4 % 2 * 2 + position % 2]]
  [[position / 2 % 2 * 2 + position % 2]])
nacre_mutant(wide_attention_rows_in_no_such_order
  kernels/cuda/attention_wide_block.cuh
  [[t / 2 * 8 + (t % 2 ^ pair) * 4]] [[t / 2 * 8 + t % 2 * 4]])
nacre_mutant(wide_attention_mask_of_another_position
  kernels/cuda/attention_wide_block.cuh
  [[lane % 4 < 2 ? 10 : -6]] [[2]])
nacre_mutant(wide_attention_operand_of_rows_elsewhere
  kernels/cuda/wide_operands.cuh
  [[uint64_t{1024 / 16} << 32]] [[uint64_t{512 / 16} << 32]])
nacre_mutant(wide_attention_operand_of_columns_elsewhere
  kernels/cuda/wide_operands.cuh [[8 * rows]] [[1]])
nacre_mutant(wide_attention_operand_of_another_step
  kernels/cuda/wide_operands.cuh [[16 * 8 * step]] [[8 * 8 * step]])
nacre_mutant(wide_attention_queries_of_another_half
  kernels/cuda/attention_wide_block.cuh
  [[step % 4 * 2 + half]] [[step % 4 * 2 + 1 - half]])
nacre_mutant(wide_attention_weights_of_another_group
  kernels/cuda/attention_wide.cuh
  [=[pairs_[2 * i + 1]]=] [=[pairs_[2 * i ^ 3]]=])
nacre_mutant(packed_weights_of_another_lane kernels/cuda/gemm_weights.cuh
  [=[words[half * 64 + 32 + lane]]=] [=[words[half * 64 + 32 + (lane ^ 4)]]=])
nacre_mutant(scales_of_another_row kernels/cuda/gemm_weights.cuh
  [[kBlockWeightBytes / sizeof(uint32_t) + lane / 4]]
  [[kBlockWeightBytes / sizeof(uint32_t) + lane % 4]])
nacre_mutant(int4_weights_of_another_step kernels/cuda/gemm_weights.cuh
  [[words.x >> (8 * step + 4)]] [[words.x >> (8 * step ^ 12)]])
nacre_mutant(int4_scales_of_another_half kernels/cuda/gemm_weights.cuh
  [[kInt4WeightBytes + group * kBlockScaleBytes]]
  [[kInt4WeightBytes + (1 - group) * kBlockScaleBytes]])
nacre_mutant(sum_of_another_lane kernels/cuda/gemm_skinny_results.cuh
  [[row / 8 * 32 + output % 8 * 4 + row % 8 / 2]]
  [[row / 8 * 32 + output % 8 * 4 + row % 4]])
nacre_mutant(sum_of_another_part kernels/cuda/gemm_skinny_results.cuh
  [[output / 8 * 2 + row % 2]] [[output / 8 + row % 2 * 2]])

# --------------------------------------------------------------- wrong experts
# Found by logits that are far from Hugging Face's.
nacre_mutant(experts_weight_of_another kernels/cuda/elementwise.cu
  [=[weights[i]]=]
  [=[weights[row * count + (i + 1) % count]]=])
nacre_mutant(experts_weight_in_bf16 kernels/cuda/elementwise.cu
  [=[weights[i]]=]
  [=[__uint_as_float(uint32_t{RoundToBF16(weights[i])} << 16)]=])
nacre_mutant(experts_result_of_another kernels/cuda/elementwise.cu
  [=[static_cast<size_t>(parts[i])]=]
  [=[static_cast<size_t>(parts[row * count])]=])
nacre_mutant(experts_last_left_out kernels/cuda/elementwise.cu
  [[i < (row + 1) * count]] [[i + 1 < (row + 1) * count]])

# ------------------------------------------------- lowered shared-memory limits
nacre_mutant_statement(limit_of_the_first_launch kernels/cuda/kernel_setup.h
  [[  status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);]]
  [[  status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
      static_cast<int>(shared_bytes));]])
# As before, but at every launch: of those that are recorded the last one counts.
nacre_mutant_statement(limit_of_the_last_launch kernels/cuda/kernel_setup.h
  [[  status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);]]
  [[  status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
      static_cast<int>(shared_bytes));]])
nacre_mutant(limit_of_the_last_launch kernels/cuda/kernel_setup.h
  [[found != limits.end() && found->second >= shared_bytes]] [[false]])
