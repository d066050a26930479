# The bugs that are planted in mixtures of experts (cmake/Mutants.cmake), each of
# which model_cuda_mutants_emulated_test must find. Those of the device's kernels:
# tests/kernels/cuda/mutants.cmake.

nacre_mutant_statement(experts_next_instead_of_the_last model/experts.cc
  [[  choices->resize(static_cast<size_t>(count));]]
  [[  std::swap((*choices)[static_cast<size_t>(count) - 1],
            (*choices)[static_cast<size_t>(count)]);
  choices->resize(static_cast<size_t>(count));]])
nacre_mutant(experts_largest_weight_again model/experts.cc
  [[double{choice.weight} / total]] [[1.0 / total]])
nacre_mutant_statement(experts_weights_do_not_sum_to_1 model/experts.cc
  [[    total = 0;]] [[]])
nacre_mutant(experts_get_other_rows model/experts.cc
  [[i / static_cast<size_t>(options.per_token)]]
  [[(chosen - 1 - i) / static_cast<size_t>(options.per_token)]])
