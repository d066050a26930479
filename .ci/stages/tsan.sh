#!/usr/bin/env bash
# ThreadSanitizer over the tests of folders where threads meet.
source "$(dirname "$0")/common.sh"

readonly TSAN_FOLDERS=(common rpc speculation telemetry worker draft_worker
  target_worker coordinator)

folders=() targets=()
for folder in "${TSAN_FOLDERS[@]}"; do
  if [[ -f "tests/$folder/CMakeLists.txt" ]]; then
    folders+=("$folder")
    targets+=("tests/$folder/all")
  fi
done
cmake --preset tsan --log-level=NOTICE
cmake --build build-tsan --parallel "$JOBS" --target "${targets[@]}"
for folder in "${folders[@]}"; do
  echo "-- tests/$folder"
  ctest --test-dir "build-tsan/tests/$folder" --parallel "$JOBS" \
    --label-exclude 'slow|cuda' --no-tests=error
done
drop_tree build-tsan
