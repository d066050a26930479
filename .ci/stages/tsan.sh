#!/usr/bin/env bash
# ThreadSanitizer over the tests of folders where threads meet, and of those
# sources of other folders where they do.
source "$(dirname "$0")/common.sh"

readonly TSAN_FOLDERS=(common rpc telemetry worker draft_worker target_worker
  coordinator)
# Of kernels/ the threads of a backend and the sums of ranks, of model/ a model on
# ranks, of gateway/ its event loop and HTTP server. The gateway's calls to
# coordinators are not among them: with all they include, they would take a minute
# more than what speculation/, which has no threads, took before.
readonly TSAN_TESTS=(kernels_thread_pool_test
  kernels_shared_memory_collective_test kernels_rank_backend_test
  tensor_parallel_model_test gateway_http_server_test)

cmake --preset tsan --log-level=NOTICE
targets=("${TSAN_TESTS[@]}")
for folder in "${TSAN_FOLDERS[@]}"; do
  [[ -d "build-tsan/tests/$folder" ]] || {
    echo "tests/$folder is no folder of tests"
    exit 1
  }
  targets+=("tests/$folder/all")
done
cmake --build build-tsan --parallel "$JOBS" --target "${targets[@]}"
for folder in "${TSAN_FOLDERS[@]}"; do
  echo "-- tests/$folder"
  run_tests "build-tsan/tests/$folder" --label-exclude 'slow|cuda'
done
run_tests build-tsan --tests-regex "^($(IFS='|' && echo "${TSAN_TESTS[*]}"))\$"
drop_tree build-tsan
