# CUDA, where its compiler is: sets NACRE_HAVE_CUDA. Programs made with the two
# functions below need nothing but CUDA, so they also run on a GPU machine that
# has none of our packages.

set(NACRE_HAVE_CUDA OFF)
# Host code under a sanitizer or the fuzzer is clang's and gcc's, not nvcc's.
if(NACRE_CUDA AND NOT NACRE_SANITIZE AND NOT NACRE_BUILD_FUZZERS)
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_PATH
                 PATHS /usr/local/cuda/bin)
  endif()
  if(CMAKE_CUDA_COMPILER)
    check_language(CUDA)
  endif()
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      # 90a has what only compute capability 9.0 has. Later GPUs compile the PTX
      # of the last.
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual)
    endif()
    enable_language(CUDA)
    # CMake 3.25 does not know that nvcc has C++20 since 12.0.
    if(NOT "cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
      list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
      set(CMAKE_CUDA20_COMPILE_FEATURES cuda_std_20)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(NACRE_HAVE_CUDA ON)
    if(CCACHE)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
    endif()
  endif()
endif()

# NCCL is loaded when a worker is told to use it: its header is all that the
# build needs. NACRE_NCCL_VERSION: "none", or the header's.
set(NACRE_NCCL_VERSION none)
if(NACRE_HAVE_CUDA)
  find_path(NACRE_NCCL_INCLUDE_DIR nccl.h
            HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  if(NACRE_NCCL_INCLUDE_DIR)
    file(STRINGS ${NACRE_NCCL_INCLUDE_DIR}/nccl.h nccl_numbers
         REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) [0-9]+$")
    list(TRANSFORM nccl_numbers REPLACE ".* " "")
    list(JOIN nccl_numbers "." NACRE_NCCL_VERSION)
    if(NACRE_NCCL_VERSION VERSION_LESS 2.17)
      message(STATUS "NCCL ${NACRE_NCCL_VERSION} is too old: 2.17 is needed")
      set(NACRE_NCCL_VERSION none)
    endif()
  endif()
endif()

# cublasLt likewise, where its header is.
if(NACRE_HAVE_CUDA)
  find_path(NACRE_CUBLASLT_INCLUDE_DIR cublasLt.h
            HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
endif()

# nacre_cuda_target(NAME): how our CUDA code is compiled. --fmad=false: as
# -ffp-contract=off (CMakeLists.txt).
function(nacre_cuda_target name)
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(
    ${name} PRIVATE --fmad=false "SHELL:--Werror all-warnings"
                    "SHELL:-Xcompiler -Wall,-Wextra")
endfunction()

# nacre_cuda_test(NAME SRCS ... DEPS ...): one CTest test with the label cuda,
# skipped where there is no device.
function(nacre_cuda_test name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  if(NOT NACRE_HAVE_CUDA OR NOT NACRE_BUILD_TESTS)
    return()
  endif()
  add_executable(${name} ${ARG_SRCS})
  nacre_cuda_target(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                                           ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS cuda TIMEOUT 300
                                          SKIP_RETURN_CODE 77)
  nacre_cuda_bundled(${name} "")
endfunction()
