# The few functions that every folder's CMakeLists.txt uses.

# nacre_join_sources(NAME OUT SOURCE ...): OUT is these sources, up to NACRE_UNITY
# of them joined in one that includes them: most of the time of a small source goes
# into headers. (CMake's own unity sources hold absolute paths: no clone could take
# another one's objects from ccache.) Alone stay sources that Highway compiles again
# for every CPU, those that a mutation test replaces, and those with properties
# of their own, which must be set before.
function(nacre_join_sources name out)
  set(mutants)
  foreach(list simulation/protocol/mutants.cmake model/glide_mutants.cmake
               model/expert_mutants.cmake model/option_mutants.cmake
               worker/prompt_mutants.cmake)
    file(STRINGS ${PROJECT_SOURCE_DIR}/tests/${list} listed
         REGEX "^nacre_mutant.*[.]cc")
    string(APPEND mutants "${listed};")
  endforeach()
  set(alone)
  set(joined)
  foreach(source ${ARGN})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
               OUTPUT_VARIABLE path)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    file(RELATIVE_PATH relative ${PROJECT_SOURCE_DIR} ${path})
    string(FIND "${mutants}" " ${relative}" mutated)
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR ${path} generated)
    if(NACRE_UNITY AND NOT definitions AND NOT generated AND mutated EQUAL -1
       AND EXISTS ${path} AND relative MATCHES "[.]cc$")
      file(STRINGS ${path} highway REGEX "hwy/foreach_target.h" LIMIT_COUNT 1)
      if(NOT highway)
        list(APPEND joined ${relative})
        continue()
      endif()
    endif()
    list(APPEND alone ${source})
  endforeach()
  set(part 0)
  while(joined)
    list(SUBLIST joined 0 ${NACRE_UNITY} some)
    list(REMOVE_ITEM joined ${some})
    list(TRANSFORM some PREPEND "#include \"" OUTPUT_VARIABLE lines)
    list(TRANSFORM lines APPEND "\"\n")
    list(JOIN lines "" lines)
    set(file ${CMAKE_CURRENT_BINARY_DIR}/joined/${name}_${part}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "${lines}" @ONLY)
    list(APPEND alone ${file})
    math(EXPR part "${part} + 1")
  endwhile()
  set(${out} ${alone} PARENT_SCOPE)
endfunction()

# nacre_library(NAME SRCS a.cc ... DEPS target ...): one static library a folder,
# named nacre_NAME; dependencies point down (docs/source.md).
function(nacre_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  nacre_join_sources(${name} sources ${ARG_SRCS})
  add_library(nacre_${name} STATIC ${sources})
  target_link_libraries(nacre_${name} PUBLIC nacre_options ${ARG_DEPS})
endfunction()

# What every program of ours is linked with under ThreadSanitizer (the files say
# why).
function(nacre_sanitized name)
  if(NACRE_SANITIZE MATCHES thread)
    if(NOT TARGET nacre_sanitized)
      add_library(
        nacre_sanitized OBJECT
        ${PROJECT_SOURCE_DIR}/tests/testing/tsan_abseil.cc
        ${PROJECT_SOURCE_DIR}/tests/testing/tsan_grpc.cc
        ${PROJECT_SOURCE_DIR}/tests/testing/tsan_spdlog.cc)
      target_link_libraries(
        nacre_sanitized PUBLIC nacre_options absl::synchronization gRPC::grpc
                               spdlog::spdlog)
    endif()
    target_link_libraries(${name} PRIVATE nacre_sanitized)
  endif()
endfunction()

# nacre_executable(NAME SRCS ... DEPS ...): a program in build/bin.
function(nacre_executable name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE nacre_options ${ARG_DEPS})
  nacre_sanitized(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                                           ${PROJECT_BINARY_DIR}/bin)
endfunction()

# See nacre_test.
function(nacre_test_paths name)
  file(RELATIVE_PATH bin ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/bin)
  target_compile_definitions(
    ${name} PRIVATE NACRE_TEST_DATA="tests/data" NACRE_MODELS="models"
                    NACRE_BIN="${bin}")
endfunction()

# nacre_test(NAME SRCS ... DEPS ... [LABEL unit|integration|cuda|slow]
#            [TIMEOUT seconds] [ARGS ...] [DEFINES NAME=value ...] [OPTIMIZED]):
# a GoogleTest binary registered as one CTest test, run in the root of the
# sources; nothing where tests are not built, so what a test needs is said in this
# call. NACRE_TEST_DATA is tests/data, NACRE_MODELS the bundled models, NACRE_BIN
# the folder of the programs, all relative to it: with absolute paths, no clone
# could take another one's objects from ccache. What a test measures or repeats is
# in libraries; its own sources are compiled in a third less of the time, unless
# OPTIMIZED.
function(nacre_test name)
  cmake_parse_arguments(ARG "OPTIMIZED" "LABEL;TIMEOUT" "SRCS;DEPS;ARGS;DEFINES"
                        ${ARGN})
  if(NOT NACRE_BUILD_TESTS)
    return()
  endif()
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    # Finds what hangs; a machine busy with other things must not reach it.
    set(ARG_TIMEOUT 3600)
  endif()
  nacre_join_sources(${name} sources ${ARG_SRCS})
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE nacre_options ${ARG_DEPS} GTest::gmock
                                        GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE ${ARG_DEFINES})
  nacre_sanitized(${name})
  nacre_test_paths(${name})
  if(ARG_OPTIMIZED)
    # As the libraries.
  elseif(NACRE_SANITIZE)
    # Checks in what the optimizer inlines into a test take clang twice as long.
    target_compile_options(${name} PRIVATE -O0)
  elseif(CMAKE_BUILD_TYPE STREQUAL Release)
    target_compile_options(${name} PRIVATE -O1)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                                           ${PROJECT_BINARY_DIR}/tests)
  add_test(
    NAME ${name}
    COMMAND ${name} ${ARG_ARGS}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT
                                          ${ARG_TIMEOUT})
  if(ARG_LABEL STREQUAL cuda)
    nacre_cuda_bundled(${name} "${ARG_ARGS}")
  endif()
endfunction()

# nacre_cuda_bundled(NAME ARGS): a test that cmake/GpuBundle.cmake takes along.
function(nacre_cuda_bundled name args)
  set_property(GLOBAL APPEND PROPERTY NACRE_CUDA_TESTS ${name})
  string(JOIN " " args ${args})
  set_target_properties(${name} PROPERTIES NACRE_TEST_ARGS "${args}")
endfunction()

# nacre_fuzz(NAME SRCS ... DEPS ... CORPUS dir): a libFuzzer target (clang with
# NACRE_BUILD_FUZZERS), in build/fuzz.
function(nacre_fuzz name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  if(NOT NACRE_BUILD_FUZZERS)
    return()
  endif()
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE nacre_options ${ARG_DEPS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                                           ${PROJECT_BINARY_DIR}/fuzz)
endfunction()
