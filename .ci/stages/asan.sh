#!/usr/bin/env bash
# AddressSanitizer and UBSan over the unit tests.
source "$(dirname "$0")/common.sh"

# CTest labels that run. The real processes (`integration`) have their time limits
# without: `ctest --test-dir build-asan -L integration` runs them by hand.
readonly ASAN_LABELS='unit'
# ... except what repeats the same code paths thousands of times, starts
# processes, or is a client only and a fifth of all that would be compiled.
readonly ASAN_SKIPPED="protocol_|tools_|batch_combinations|simd_targets|fleet_law"

cmake --preset asan --log-level=NOTICE
test_chosen build-asan --label-regex "$ASAN_LABELS" \
  --label-exclude 'slow|cuda' --exclude-regex "$ASAN_SKIPPED"
drop_tree build-asan
