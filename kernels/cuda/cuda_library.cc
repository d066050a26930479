#include "kernels/cuda/cuda_library.h"

#include <dlfcn.h>

namespace nacre::kernels::cuda {

void* OpenCudaLibrary(const std::string& name, std::string* error) {
  const std::string file = "lib" + name + ".so";
  for (const std::string& each :
       {file + ".13", file + ".12", file, "/usr/local/cuda/lib64/" + file}) {
    void* const library = dlopen(each.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
    // What is said of the first tells which one was wanted.
    const char* const problem = dlerror();
    if (error->empty() && problem != nullptr) *error = problem;
  }
  return nullptr;
}

}  // namespace nacre::kernels::cuda
