# The bugs that are planted in what ranks on devices meet by (cmake/Mutants.cmake),
# each of which kernels_nccl_mutants_emulated_test must find.

nacre_mutant_statement(call_not_waited_for kernels/nccl_group.cc
  [[  NACRE_RETURN_IF_ERROR(
      Checked(member, WaitUntilIdle(&member, "NCCL has not queued a call",
                                    2 * options_.limit)));]]
  [[]])
nacre_mutant(scratch_freed_before_its_sums kernels/nccl_collective.cc
  [[parts_ == nullptr ? absl::OkStatus() : backend_->Synchronize()]]
  [[absl::OkStatus()]])
nacre_mutant(part_begins_with_the_first_piece kernels/nccl_collective.cc
  [[part + first]] [[part]])
nacre_mutant(columns_of_ranks_swapped kernels/nccl_collective.cc
  [[api.Recv(whole, bytes, from, comm, stream)]]
  [[api.Recv(whole, bytes, from ^ 1, comm, stream)]])
nacre_mutant(rows_of_a_later_group_over_the_first kernels/nccl_collective.cc
  [[rank() == 0 ? whole + done * all : nullptr]]
  [[rank() == 0 ? whole : nullptr]])
# In the order of ranks: other bits, and other ones for other numbers of ranks.
nacre_mutant_statement(parts_added_one_after_the_other kernels/nccl_collective.cc
  [[backend_->AddParts(parts_->f32(), ranks(), some, sum + first);]]
  [[backend_->AddParts(parts_->f32(), 2, some, sum + first);
    for (size_t rank = 2; rank < all; ++rank) {
      backend_->AddInPlace(sum + first, parts_->f32() + rank * some, some);
    }]])
