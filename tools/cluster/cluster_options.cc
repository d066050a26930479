// What can be said about a cluster, and what is wrong with it.

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/cpu_list.h"
#include "common/status_macros.h"
#include "tools/cluster/cluster.h"

namespace nacre::tools {
namespace {

constexpr char kCoordinatorGroup[] = "coordinator";
constexpr char kGatewayGroup[] = "gateway";
constexpr char kWorkerGroup[] = "worker";
constexpr char kTargetGroup[] = "target";
constexpr char kDraftGroup[] = "draft";

// What the worker would say of these flags, as it reads and checks them. It is
// told where its coordinator is when that runs.
absl::Status CheckWorkerFlags(const std::string& role, const std::string& model,
                              const std::vector<std::string>& of_all,
                              const std::vector<std::string>& of_role) {
  worker::WorkerOptions worker;
  FlagSet flags(absl::StrCat("nacre-", role, "-worker"), "");
  worker.Register(&flags);
  std::vector<std::string> args = {"--model", model, "--coordinator",
                                   "127.0.0.1:1"};
  args.insert(args.end(), of_all.begin(), of_all.end());
  args.insert(args.end(), of_role.begin(), of_role.end());
  absl::Status status = flags.Parse(args, /*environment=*/nullptr);
  if (status.ok()) status = worker::Validate(worker);
  return absl::Status(status.code(),
                      absl::StrCat(role, " workers: ", status.message()));
}

}  // namespace

void Cluster::Options::Register(FlagSet* flags) {
  flags->Add("target-model", "DIR", &target_model,
             "checkpoint of the target, the model that decides");
  flags->Add("draft-model", "DIR", &draft_model,
             "checkpoint of the draft, the model that proposes");
  flags->Add("coordinators", "N", &coordinators,
             "coordinators, all with the same workers");
  flags->Add("targets", "N", &targets, "target workers");
  flags->Add("drafts", "N", &drafts,
             "draft workers; 0: no speculation but what the targets draft by "
             "themselves, from suffixes (--suffix-drafter) or beside their "
             "model (--medusa, --eagle and others)");
  flags->Add("cpus", "LIST", &cpus,
             "cores to deal out to the workers, as in 0-3,6 (default: all)");
  flags->BeginGroup(kWorkerGroup);
  workers.compute.Register(flags);
  workers.tensors.Register(flags);
  flags->BeginGroup(kDraftGroup, "draft-", "of the drafts alone");
  workers.draft_compute.Register(flags);
  flags->BeginGroup(kDraftGroup, "draft-", "of the drafts");
  workers.draft_steps.Register(flags);
  flags->BeginGroup(kTargetGroup, "target-", "of the targets");
  workers.target_steps.Register(flags);
  flags->BeginGroup(kTargetGroup);
  workers.prefill.Register(flags);
  workers.own_drafts.Register(flags);
  flags->BeginGroup(kDraftGroup);
  workers.policies.Register(flags);
  workers.vocabulary.RegisterShare(flags);
  flags->BeginGroup("");
}

void Cluster::Options::ReadPromptsWhole() {
  workers.compute.prefix_cache = false;
  more_args.worker.emplace_back("--prefix-cache=off");
}

void Cluster::Options::HandOn(const FlagSet& flags) {
  for (const auto& [group, args] :
       {std::pair(kCoordinatorGroup, &more_args.coordinator),
        std::pair(kGatewayGroup, &more_args.gateway),
        std::pair(kWorkerGroup, &more_args.worker),
        std::pair(kTargetGroup, &more_args.target),
        std::pair(kDraftGroup, &more_args.draft)}) {
    const std::vector<std::string> given = flags.Given(group);
    args->insert(args->end(), given.begin(), given.end());
  }
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
  NACRE_RETURN_IF_ERROR(CheckWorkerFlags(kTargetGroup, target_model,
                                         more_args.worker, more_args.target));
  if (drafts > 0) {
    NACRE_RETURN_IF_ERROR(CheckWorkerFlags(kDraftGroup, draft_model,
                                           more_args.worker, more_args.draft));
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
