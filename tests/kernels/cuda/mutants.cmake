# The bugs that are planted in CUDA source for the emulated device
# (cmake/Mutants.cmake), each of which model_cuda_mutants_emulated_test must
# find. Waits for the kernel before that come too late, of every kernel:
# tests/model/cuda_overlap_test.cc.

# ----------------------------------------------------------------- missing waits
nacre_mutant_statement(skinny_ring_not_waited_for kernels/cuda/gemm_skinny.cuh
  [[      WaitCopies<kStages - 2>();]] [[]])
nacre_mutant_statement(skinny_lanes_not_waited_for kernels/cuda/gemm_skinny.cuh
  [[      __syncwarp();  // copies of all lanes are there, the last stage is read]]
  [[]])
nacre_mutant_statement(skinny_chains_not_waited_for kernels/cuda/gemm_skinny.cuh
  [[    __syncthreads();]] [[]])
nacre_mutant_statement(skinny_kernel_before_not_waited_for
  kernels/cuda/gemm_skinny.cuh [[  WaitForPrevious();]] [[]])
nacre_mutant_statement(tiled_stage_not_waited_for kernels/cuda/gemm_tiled.cuh
  [[    WaitCopies<kStages - 2>();]] [[]])
nacre_mutant(tiled_stage_refilled_too_early kernels/cuda/gemm_tiled.cuh
  [[stage == 0 ? kStages - 1 : stage - 1]] [[stage]])
nacre_mutant_statement(tiled_warps_not_waited_for kernels/cuda/gemm_tiled.cuh
  [[    __syncthreads();  // copies of all are there, the last stage is read]]
  [[]])
nacre_mutant_statement(tiled_kernel_before_not_waited_for
  kernels/cuda/gemm_tiled.cuh [[  WaitForPrevious();]] [[]])
set(chunk_wait
  [[  if (chunk == 0) {
    WaitCopies<1>();
  } else {
    WaitCopies<0>();
  }
  __syncwarp();]])
nacre_mutant_statement(attention_copies_not_waited_for
  kernels/cuda/attention_bf16.cuh "${chunk_wait}" [[  __syncwarp();]])
nacre_mutant_statement(attention_lanes_not_waited_for
  kernels/cuda/attention_bf16.cuh "${chunk_wait}"
  [[  if (chunk == 0) {
    WaitCopies<1>();
  } else {
    WaitCopies<0>();
  }]])
nacre_mutant_statement(attention_places_not_waited_for
  kernels/cuda/attention_bf16.cuh
  [[  __syncthreads();
  block.CopyValues(first_split * kAttentionSplit, 0);]]
  [[  block.CopyValues(first_split * kAttentionSplit, 0);]])
nacre_mutant_statement(attention_weights_not_waited_for
  kernels/cuda/attention_bf16.cuh
  [[    __syncthreads();
    at.steps = (seen + 31) / 32 * 2;]] [[    at.steps = (seen + 31) / 32 * 2;]])
nacre_mutant_statement(attention_maxima_not_waited_for
  kernels/cuda/attention_bf16.cuh
  [[    __syncthreads();
    if (split < last_split) block.FindPlaces(begin + kAttentionSplit);]]
  [[    if (split < last_split) block.FindPlaces(begin + kAttentionSplit);]])

# --------------------------------------------------------------- wrong fragments
nacre_mutant_statement(bf16_weights_swapped kernels/cuda/gemm_weights.cuh
  [[      even[0] = low.x, even[1] = high.x, even[2] = low.y, even[3] = high.y;]]
  [[      even[0] = low.x, even[1] = low.y, even[2] = high.x, even[3] = high.y;]])
nacre_mutant(packed_weights_of_another_lane kernels/cuda/gemm_weights.cuh
  [=[words[half * 64 + 32 + lane]]=] [=[words[half * 64 + 32 + (lane ^ 4)]]=])
nacre_mutant(scales_of_another_row kernels/cuda/gemm_weights.cuh
  [[kBlockWeightBytes / sizeof(uint32_t) + lane / 4]]
  [[kBlockWeightBytes / sizeof(uint32_t) + lane % 4]])
nacre_mutant(sum_of_another_lane kernels/cuda/gemm_skinny.cuh
  [[row / 8 * 32 + output % 8 * 4 + row % 8 / 2]]
  [[row / 8 * 32 + output % 8 * 4 + row % 4]])
nacre_mutant(sum_of_another_part kernels/cuda/gemm_skinny.cuh
  [[output / 8 * 2 + row % 2]] [[output / 8 + row % 2 * 2]])
nacre_mutant(sum_of_another_output kernels/cuda/gemm_tiled.cuh
  [[part / 2 * 8 + lane / 4]] [[part % 2 * 8 + lane / 4]])
nacre_mutant(values_of_another_dimension kernels/cuda/attention_bf16_block.cuh
  [[j % 2 == 0 ? 0x5410 : 0x7632]] [[0x5410]])
nacre_mutant(values_of_another_position kernels/cuda/attention_bf16_block.cuh
  [[lane % 4 * 8 + step % 2 * 2]] [[lane % 4 * 8 + step % 2 * 4]])

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
