#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "kernels/device_collectives.h"
#include "kernels/weight_type.h"
#include "model/tensor_shard.h"
#include "worker/process/flag_values.h"
#include "worker/process/options.h"

namespace nacre::worker {
namespace {

// "2", or a device for each rank: "0,1,2,3".
absl::Status SetDevices(const std::string& text,
                        kernels::BackendOptions* backend) {
  std::vector<int> devices;
  for (const absl::string_view number : absl::StrSplit(text, ',')) {
    int device = 0;
    if (!absl::SimpleAtoi(number, &device) || device < 0) {
      return absl::InvalidArgumentError(
          "not a device number of 0 or more, or a list of them");
    }
    devices.push_back(device);
  }
  backend->device = devices.front();
  if (devices.size() == 1) devices.clear();
  backend->devices = std::move(devices);
  return absl::OkStatus();
}

absl::Status CheckDevices(const kernels::BackendOptions& backend,
                          int tensor_parallel) {
  if (backend.devices.empty()) return absl::OkStatus();
  const std::string given =
      absl::StrCat("--device ", absl::StrJoin(backend.devices, ","));
  if (backend.kind != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat(given, " needs --backend cuda, it is ", backend.kind));
  }
  if (tensor_parallel == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(given, " needs --tensor-parallel ", backend.devices.size(),
                     ": without it there is one GPU"));
  }
  return absl::OkStatus();
}

void RegisterPrefixStore(model::KvStoreOptions* store, FlagSet* flags) {
  flags->AddParsed(
      "prefix-cache-size", "BYTES", "0",
      [store](const std::string& text) -> absl::Status {
        absl::optional<int64_t> bytes = 0;
        if (text != "0" && !SetBytes(text, &bytes).ok()) {
          return absl::InvalidArgumentError(
              "not 0 and not a number of bytes (K, M and G may follow)");
        }
        store->bytes = *bytes;
        return absl::OkStatus();
      },
      "memory beside the KV cache that keeps KV of prompts and answers when "
      "its "
      "room is needed, for later ones that begin alike; 0: none; not on GPUs");
  flags->Add("prefix-cache-dir", "DIR", &store->dir,
             "keeps that in a file of this folder, which takes its whole size "
             "at once and goes with the process (default: in memory)");
}

}  // namespace

absl::Status SetBytes(const std::string& text, absl::optional<int64_t>* value) {
  int64_t unit = 1;
  std::string digits = text;
  if (!digits.empty()) {
    const char suffix = digits.back();
    if (suffix == 'K') unit = int64_t{1} << 10;
    if (suffix == 'M') unit = int64_t{1} << 20;
    if (suffix == 'G') unit = int64_t{1} << 30;
    if (unit > 1) digits.pop_back();
  }
  int64_t count = 0;
  if (!absl::SimpleAtoi(digits, &count) || count < 1 ||
      count > std::numeric_limits<int64_t>::max() / unit) {
    return absl::InvalidArgumentError(
        "not a number of bytes of 1 or more (K, M and G may follow)");
  }
  *value = count * unit;
  return absl::OkStatus();
}

void RegisterBackend(kernels::BackendOptions* backend, FlagSet* flags) {
  flags->Add("backend", "KIND", &backend->kind, "cpu, reference or cuda");
  flags->Add("weights", "TYPE", &backend->weights, kernels::kWeightTypesHelp);
  flags->Add("kv-type", "TYPE", &backend->kv_type, kernels::kKvTypesHelp);
  flags->AddParsed(
      "device", "LIST", "0",
      [backend](const std::string& text) { return SetDevices(text, backend); },
      "GPU of --backend cuda; with --tensor-parallel the GPUs of the ranks, as "
      "in 0,1, or the first of them");
}

void ComputeFlags::Register(FlagSet* flags) {
  RegisterBackend(&backend, flags);
  flags->AddParsed(
      "max-memory", "BYTES", "",
      [this](const std::string& text) {
        return SetBytes(text, &max_memory_bytes);
      },
      "size of the KV cache, K, M and G may follow (default: what 32 full "
      "contexts need, at most 1G); of a GPU: weights, KV cache and scratch "
      "together (default: a share of what is free)");
  flags->AddSwitch(
      "prefix-cache", &prefix_cache,
      "whether prompts that begin alike share KV; outputs are the same");
  RegisterPrefixStore(&prefix_store, flags);
  flags->AddParsed(
      "tensor-parallel", "N", "0",
      [this](const std::string& text) -> absl::Status {
        int ranks = 0;
        if (!absl::SimpleAtoi(text, &ranks) ||
            !(ranks == 0 || model::IsRankCount(ranks))) {
          return absl::InvalidArgumentError("not 0, 1, 2, 4 or 8");
        }
        tensor_parallel = ranks;
        return absl::OkStatus();
      },
      "ranks that the model is split among, each with its share of the cores, "
      "of the weights and of the KV cache: 1, 2, 4 or 8, whose outputs are the "
      "same, but not those of 0 (not split); on cuda each has a GPU");
  flags->AddParsed(
      "tensor-parallel-transport", "NAME", backend.rank_transport,
      [this](const std::string& text) {
        backend.rank_transport = text;
        return kernels::CheckRankTransport(text);
      },
      "what ranks on GPUs add up by: host, in memory of the host; nccl, from "
      "GPU to GPU; peer, few rows by our own kernels in memory that GPUs of "
      "one machine read of each other, others by host; no GPUs have run the "
      "last two yet; auto, nccl where the machine "
      "has it and each rank a GPU of its own, but not between nodes with TLS; "
      "outputs are the same");
  flags->AddSwitch(
      "persistent-steps", &backend.persistent,
      "whether steps of one or few rows are one kernel on --backend cuda, "
      "where they can be (nacre_worker_step_lists_total counts), and not a "
      "CUDA graph; of bf16 weights, not with --tensor-parallel; outputs are "
      "the same, and no GPU has timed it yet");
  flags->AddSwitch(
      "warpgroup-attention", &backend.warpgroup_attention,
      "whether attention of prompts on --backend cuda is by warpgroups, of "
      "bf16 keys and values with heads of 64 or 128 dimensions on GPUs of "
      "compute capability 9.0; outputs are the same, and no GPU has run it "
      "yet");
}

absl::Status ComputeFlags::Validate() const {
  if (prefix_store.bytes > 0 && !prefix_cache) {
    return absl::InvalidArgumentError(absl::StrCat("--prefix-cache-size ",
                                                   prefix_store.bytes,
                                                   " needs --prefix-cache on"));
  }
  if (prefix_store.bytes > 0 && backend.kind == "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("--prefix-cache-size ", prefix_store.bytes,
                     ": the backend cuda keeps no more than its KV cache "
                     "holds; \"cpu\" and \"reference\" do"));
  }
  NACRE_RETURN_IF_ERROR(CheckDevices(backend, tensor_parallel));
  if (backend.persistent && backend.kind != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--persistent-steps needs --backend cuda, it is ", backend.kind));
  }
  if (backend.persistent && tensor_parallel > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--persistent-steps and --tensor-parallel ", tensor_parallel,
        " exclude each other: ranks wait for each other twice a layer, and "
        "few kernels are in between"));
  }
  if (backend.warpgroup_attention && backend.kind != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--warpgroup-attention needs --backend cuda, it is ", backend.kind));
  }
  const std::string& transport = backend.rank_transport;
  const bool by_peers = transport == "peer";
  if ((by_peers || transport == "nccl") && backend.kind != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("--tensor-parallel-transport ", transport,
                     " needs --backend cuda, it is ", backend.kind));
  }
  if (transport == "nccl" && tensor_parallel == 0) {
    return absl::InvalidArgumentError(
        "--tensor-parallel-transport nccl needs --tensor-parallel");
  }
  if (by_peers && tensor_parallel < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--tensor-parallel-transport peer needs --tensor-parallel of 2 or "
        "more, it is ",
        tensor_parallel));
  }
  if (prefix_store.bytes == 0 && !prefix_store.dir.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prefix-cache-dir ", prefix_store.dir,
                     " needs --prefix-cache-size, the size of its file"));
  }
  return absl::OkStatus();
}

}  // namespace nacre::worker
