// What can be said about a cluster, and what is wrong with it.

#include "absl/strings/str_cat.h"
#include "common/cpu_list.h"
#include "kernels/backend_factory.h"
#include "kernels/weight_type.h"
#include "tools/cluster/cluster.h"

namespace nacre::tools {

void Cluster::Options::Register(FlagSet* flags) {
  flags->Add("target-model", "DIR", &target_model,
             "checkpoint of the target, the model that decides");
  flags->Add("draft-model", "DIR", &draft_model,
             "checkpoint of the draft, the model that proposes");
  flags->Add("coordinators", "N", &coordinators,
             "coordinators, all with the same workers");
  flags->Add("targets", "N", &targets, "target workers");
  flags->Add("drafts", "N", &drafts,
             "draft workers; 0: no speculation, or from suffixes alone "
             "(--suffix-drafter), heads (--medusa), features (--eagle) or "
             "keys and values (--glide)");
  flags->Add("backend", "B", &workers.backend, "kernels of the workers");
  flags->Add("device", "N", &workers.device, "accelerator of the workers");
  flags->Add("draft-backend", "B", &workers.draft_backend,
             "kernels of the drafts (default: --backend)");
  flags->Add("draft-device", "N", &workers.draft_device,
             "accelerator of the drafts (default: --device)");
  flags->Add("target-step-time", "ROWS:MS,...", &workers.target_step_time,
             "each step of a target takes at least as long as that for its "
             "rows, by waiting, as in 1:30,8:30.5: what the service does on "
             "devices of that speed (default: no waiting)");
  flags->Add("draft-step-time", "ROWS:MS,...", &workers.draft_step_time,
             "the same for the drafts");
  flags->Add("weights", "T", &workers.weights, kernels::kWeightTypesHelp);
  flags->Add("draft-weights", "T", &workers.draft_weights,
             "the same for the drafts (default: --weights)");
  flags->Add("kv-type", "T", &workers.kv_type, kernels::kKvTypesHelp);
  flags->Add("cpus", "LIST", &cpus,
             "cores to deal out to the workers, as in 0-3,6 (default: all)");
  flags->Add("max-memory", "BYTES", &workers.max_memory,
             "most memory of a worker; K, M and G may follow");
  flags->Add("prefix-cache", "on|off", &workers.prefix_cache,
             "whether prompts that begin alike share KV");
  flags->Add("suffix-drafter", "on|off", &workers.suffix_drafter,
             "whether targets draft from what they have seen, too "
             "(default: on)");
  flags->Add("suffix-cache", "BYTES", &workers.suffix_cache,
             "memory of a target for answers that it drafts from, for the same "
             "client; K, M and G may follow; 0: none (default: 16M)");
  flags->Add("medusa", "PATH", &workers.medusa,
             "Medusa heads of the target that it drafts from: a file of "
             "safetensors or its folder");
  flags->Add("medusa-tree", "TREE", &workers.medusa_tree,
             "which of their candidates may be verified: best or static:FILE "
             "(default: best)");
  flags->Add("eagle", "DIR", &workers.eagle,
             "EAGLE draft of the target that it drafts from, in place of "
             "Medusa heads");
  flags->Add(
      "glide", "DIR", &workers.glide,
      "GliDe draft of the target that it drafts from, in place of these");
  flags->AddRepeated("policy-file", "NAME=DIR", &policy_files,
                     "calibration of a length policy, for the drafts; may be "
                     "given several times");
}

absl::Status Cluster::Options::Validate() const {
  if (target_model.empty()) {
    return absl::InvalidArgumentError("flag --target-model is needed");
  }
  if (draft_model.empty() && drafts != 0) {
    return absl::InvalidArgumentError(
        "flag --draft-model is needed, or --drafts 0");
  }
  if (coordinators < 1 || coordinators > 16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "flag --coordinators: ", coordinators, " is not in 1..16"));
  }
  if (targets < 1 || targets > 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --targets: ", targets, " is not in 1..64"));
  }
  if (drafts < 0 || drafts > 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --drafts: ", drafts, " is not in 0..64"));
  }
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --port: ", port, " is not in 0..65535"));
  }
  const int metrics = metrics_port.value_or(0);
  if (metrics < 0 || metrics > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --metrics-port: ", metrics, " is not in 0..65535"));
  }
  const int http = http_port.value_or(0);
  if (http < 0 || http > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --http-port: ", http, " is not in 0..65535"));
  }
  if (drain_timeout.value_or(absl::ZeroDuration()) < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "flag --drain-timeout: ", absl::FormatDuration(*drain_timeout),
        " is below 0"));
  }
  if (!cpus.empty()) {
    const auto parsed = ParseCpuList(cpus);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag --cpus: ", parsed.status().message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace nacre::tools
