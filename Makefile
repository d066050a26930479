# The few commands a person types. Each works from a fresh clone of a bare
# Debian 12 (git, make, a compiler): it installs what is missing, configures and
# builds first. All share one build tree, build/; CMake presets give the others.

BUILD := build
JOBS ?= $(shell nproc)
PROGRAMS := nacre nacre-coordinator nacre-gateway nacre-draft-worker \
	nacre-target-worker
# Tests that take minutes (`make slow`) or need a GPU stay out of `make test`.
SKIPPED_LABELS := slow|cuda
# Twice the cores: a service under test waits much. It counts as two tests.
TEST_JOBS ?= $(shell expr 2 '*' $(JOBS))

.DEFAULT_GOAL := help
.PHONY: help quickstart build test slow bench bench-gpu gpu-bundle package \
        format clean deps dev-deps configure

help:
	@echo 'make quickstart  install, build, run the bundled models, compare the methods'
	@echo 'make build       build the programs into $(BUILD)/bin'
	@echo 'make test        install, build everything, run the tests'
	@echo 'make slow        run only the long tests (all prompts, more schedules)'
	@echo 'make bench       run the kernel and service benchmarks'
	@echo 'make bench-gpu   run the GPU benchmarks, on a machine with a GPU'
	@echo 'make gpu-bundle  put together what a GPU machine without our packages needs'
	@echo 'make package     make the Debian packages (build/packages)'
	@echo 'make format      clang-format every source in place'
	@echo 'make clean       remove every build tree'

deps:
	@scripts/install_deps.sh

dev-deps:
	@scripts/install_deps.sh --dev

# Always run: it takes a second and picks up packages that appeared since.
configure:
	@cmake --preset release --log-level=NOTICE

build: deps
	@$(MAKE) --no-print-directory configure
	cmake --build $(BUILD) --parallel $(JOBS) --target $(PROGRAMS)

quickstart: build
	@scripts/quickstart.sh

test: dev-deps
	@$(MAKE) --no-print-directory configure
	cmake --build $(BUILD) --parallel $(JOBS)
	ctest --test-dir $(BUILD) --output-on-failure --parallel $(TEST_JOBS) \
	  --label-exclude '$(SKIPPED_LABELS)' --no-tests=error || \
	  { scripts/failed_tests.sh $(BUILD); exit 1; }
	@scripts/skipped_tests.sh $(BUILD)

slow: dev-deps
	@$(MAKE) --no-print-directory configure
	cmake --build $(BUILD) --parallel $(JOBS)
	ctest --test-dir $(BUILD) --output-on-failure --label-regex slow \
	  --no-tests=error

bench: dev-deps
	@$(MAKE) --no-print-directory configure
	cmake --build $(BUILD) --parallel $(JOBS)
	@scripts/bench.sh $(BUILD)

# The next two need CUDA's compiler (docs/gpu.md).
bench-gpu: dev-deps
	@$(MAKE) --no-print-directory configure
	cmake --build $(BUILD) --parallel $(JOBS) --target bench_gpu bench_cuda_gemm
	$(BUILD)/bin/bench_gpu --json $(BUILD)/bench_gpu.json
	$(BUILD)/bin/bench_cuda_gemm 15 $(BUILD)/bench_cuda_gemm.json

gpu-bundle: dev-deps
	@$(MAKE) --no-print-directory configure
	cmake --build $(BUILD) --parallel $(JOBS) --target gpu-bundle

package: dev-deps
	@$(MAKE) --no-print-directory configure
	cmake --build $(BUILD) --parallel $(JOBS) --target $(PROGRAMS) manual
	cd $(BUILD) && cpack -G DEB

format: dev-deps
	git ls-files -z -- '*.h' '*.cc' '*.cu' '*.cuh' '*.proto' | \
	  xargs -0 --no-run-if-empty clang-format -i

clean:
	rm -rf $(BUILD) $(BUILD)-*
