# The target gpu-bundle: a folder, build/gpu-bundle, for a machine with a GPU that
# has nothing but CUDA's driver and libraries (docs/gpu.md). It holds what is
# listed here, every test with the label cuda, and the libraries they need.
if(NOT NACRE_HAVE_CUDA OR NOT NACRE_BUILD_TESTS OR NOT NACRE_SERVICES)
  return()
endif()

set(programs nacre nacre-coordinator nacre-draft-worker nacre-target-worker
             bench_gpu bench_cuda_gemm)
get_property(tests GLOBAL PROPERTY NACRE_CUDA_TESTS)

# Lines "bin FILE" and "test FILE ARGS...", for scripts/gpu_bundle.sh.
set(list)
foreach(name ${programs})
  string(APPEND list "bin $<TARGET_FILE:${name}>\n")
endforeach()
foreach(name ${tests})
  get_target_property(args ${name} NACRE_TEST_ARGS)
  string(APPEND list "test $<TARGET_FILE:${name}> ${args}\n")
endforeach()
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/gpu-bundle.txt CONTENT "${list}")

# Their libraries lie beside them. An RPATH, unlike a RUNPATH, also holds for what
# those libraries need themselves.
foreach(name ${programs} ${tests})
  set_target_properties(${name} PROPERTIES BUILD_RPATH "$ORIGIN/../lib")
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
endforeach()

add_custom_target(
  gpu-bundle
  COMMAND ${PROJECT_SOURCE_DIR}/scripts/gpu_bundle.sh ${PROJECT_BINARY_DIR}
          ${PROJECT_BINARY_DIR}/gpu-bundle
  VERBATIM)
add_dependencies(gpu-bundle ${programs} ${tests})
