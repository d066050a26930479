# The bugs that are planted in how ranks meet in each other's memory
# (cmake/Mutants.cmake), each of which kernels_peer_mutants_emulated_test must
# find.

# ------------------------------------------------------------- waits and flags
nacre_mutant_statement(peers_not_waited_for kernels/cuda/peer_sums.cu
  [[    if (!WaitForPeer(peers, peer, call)) own->ended = 1;]] [[]])
nacre_mutant(peers_of_the_call_before_waited_for kernels/cuda/peer_sums.cu
  [[HasCome(flag, call)]] [[HasCome(flag, call - 1)]])
nacre_mutant(last_peer_not_waited_for kernels/cuda/peer_sums.cu
  [[peer < peers.ranks && peer != peers.rank]]
  [[peer < peers.ranks - 1 && peer != peers.rank]])
nacre_mutant_statement(threads_not_told_of_peers kernels/cuda/peer_sums.cu
  [[  __syncthreads();  // what all peers give is there]] [[]])
nacre_mutant_statement(flag_without_a_release kernels/cuda/peer_sums.cu
  [=[    SetFlag(&peers.of_ranks[peer]->arrivals[blockIdx.x][peers.rank], call);]=]
  [=[    peers.of_ranks[peer]->arrivals[blockIdx.x][peers.rank] = call;]=])
nacre_mutant_statement(flag_before_all_have_stored kernels/cuda/peer_sums.cu
  [[  __syncthreads();  // all have stored, and know the call]] [[]])
nacre_mutant_statement(kernel_before_not_waited_for kernels/cuda/peer_sums.cu
  [[  WaitForPrevious();]] [[]])

# ------------------------------------------------------------------- the memory
nacre_mutant(one_place_for_all_calls kernels/cuda/peer_sums.cu
  [[call % 2]] [[0]])
nacre_mutant(flags_of_the_first_block kernels/cuda/peer_sums.cu
  [=[peers.of_ranks[peers.rank]->arrivals[blockIdx.x][peer]]=]
  [=[peers.of_ranks[peers.rank]->arrivals[0][peer]]=])
nacre_mutant_statement(calls_not_counted kernels/cuda/peer_sums.cu
  [=[  if (peer == peers.rank) own->calls[blockIdx.x] = call;]=] [[]])
nacre_mutant(memory_freed_while_devices_use_it kernels/cuda/peer_collective.cc
  [[static_cast<void>(backend_->Synchronize())]] [[static_cast<void>(0)]])

# --------------------------------------------------------------------- the sums
nacre_mutant(ranks_added_one_after_the_other kernels/cuda/peer_sums.cu
  [[SumOfPairs<kRanks>(of_ranks, 1)]]
  [=[SumOfPairs<2>(of_ranks, 1) + of_ranks[2 % kRanks] + of_ranks[3 % kRanks]]=])
nacre_mutant(values_of_another_peer kernels/cuda/peer_sums.cu
  [[LoadFromPeer(block.ValuesOf(peers, rank) + i, of_ranks[rank])]]
  [[LoadFromPeer(block.ValuesOf(peers, rank ^ 1) + i, of_ranks[rank])]])
nacre_mutant(columns_of_ranks_swapped kernels/cuda/peer_sums.cu
  [[(row * peers.ranks + rank) * cols]] [[(row * peers.ranks + (rank ^ 1)) * cols]])

# -------------------------------------------------------------------- the ends
nacre_mutant(waits_without_a_limit kernels/cuda/peer_sums.cu
  [[Since(begin, now) < peers.limit]] [[true]])
nacre_mutant_statement(waits_whatever_the_host_says kernels/cuda/peer_sums.cu
  [[    if (HostSays(peers.stop)) return false;]] [[]])
nacre_mutant_statement(host_not_told_who_is_late kernels/cuda/peer_sums.cu
  [[    TellHost(peers.late + peer);]] [[]])
nacre_mutant(each_call_waits_again kernels/cuda/peer_sums.cu
  [[own.ended != 0]] [[false]])
