// What ranks on devices meet by in tests, and which devices they have.
// Emulated: one each, and the libnccl of the tests at NACRE_NCCL_LIBRARY, where
// that is built. GPUs: one each by NCCL, and where they read each other's
// memory; else the first, which all share.

#ifndef TESTS_KERNELS_RANK_TRANSPORTS_H_
#define TESTS_KERNELS_RANK_TRANSPORTS_H_

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/nccl_api.h"
#include "kernels/shared_memory_collective.h"
#ifdef NACRE_EMULATED_CUDA
#include "tests/kernels/cuda/emulation/runtime.h"
#ifdef NACRE_NCCL_LIBRARY
#include "tests/kernels/cuda/load_nccl_of_tests.h"
#endif
#else
#include <cuda_runtime_api.h>
#endif

namespace nacre::kernels {

class DevicesOfRanks {
 public:
  DevicesOfRanks() {
#ifdef NACRE_EMULATED_CUDA
    cuda::emulation::ResetDevice();
    cuda::emulation::settings.devices = kMostRanks;
#ifdef NACRE_NCCL_LIBRARY
    cuda::LoadNcclOfTests();
#endif
#endif
  }
  ~DevicesOfRanks() {
#ifdef NACRE_EMULATED_CUDA
    cuda::emulation::ResetDevice();
#endif
  }
  DevicesOfRanks(const DevicesOfRanks&) = delete;
  DevicesOfRanks& operator=(const DevicesOfRanks&) = delete;

  // Values of BackendOptions::rank_transport.
  static std::vector<std::string> Transports() {
#if defined(NACRE_EMULATED_CUDA) && !defined(NACRE_NCCL_LIBRARY)
    return {"host", "peer"};
#else
    return {"host", "nccl", "peer"};
#endif
  }

  // Ranks that there must be.
  static int LeastRanks(const std::string& transport) {
    return transport == "peer" ? 2 : 1;
  }

  // How many ranks there may be; 0: none.
  static int MostRanks(const std::string& transport) {
#ifdef NACRE_EMULATED_CUDA
    static_cast<void>(transport);
    return kMostRanks;
#else
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return 0;
    if (transport == "host") return kMostRanks;
    if (transport == "nccl" && !OpenNccl({}).ok()) return 0;
    // One rank meets none; of three devices two ranks have one.
    const int ranks = devices < 2   ? 0
                      : devices < 4 ? 2
                      : devices < 8 ? 4
                                    : kMostRanks;
    return transport == "peer" && !ArePeers(ranks) ? 0 : ranks;
#endif
  }

  // Theirs, by rank.
  static std::vector<int> Of(int ranks, const std::string& transport) {
#ifdef NACRE_EMULATED_CUDA
    const bool share = false;
    static_cast<void>(transport);
#else
    const bool share = transport == "host";
#endif
    std::vector<int> devices;
    for (int rank = 0; rank < ranks; ++rank) {
      devices.push_back(share ? 0 : rank);
    }
    return devices;
  }

 private:
#ifndef NACRE_EMULATED_CUDA
  // Whether the first `devices` read each other's memory.
  static bool ArePeers(int devices) {
    for (int device = 0; device < devices; ++device) {
      for (int peer = 0; peer < devices; ++peer) {
        int can = 0;
        if (peer != device &&
            (cudaDeviceCanAccessPeer(&can, device, peer) != cudaSuccess ||
             can == 0)) {
          return false;
        }
      }
    }
    return true;
  }
#endif
};

}  // namespace nacre::kernels

#endif  // TESTS_KERNELS_RANK_TRANSPORTS_H_
