// The target worker: verifies with the target model; the only judge of what is
// emitted. The coordinator calls it, after this process has registered there:
//
//   nacre-target-worker --model models/target --coordinator 127.0.0.1:50051
//
// Serves nacre.v1.TargetWorker, nacre.v1.Tensors, grpc.health.v1.Health and
// reflection on --listen. SIGTERM drains: no new sessions, the open ones end,
// exit code 0.

#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "model/eagle_projection.h"
#include "model/feature_drafter.h"
#include "model/future_heads.h"
#include "model/paced_drafts.h"
#include "target_worker/target_engine.h"
#include "target_worker/target_service.h"
#include "worker/process/process.h"
#include "worker/recording/feature_file.h"
#include "worker/tensors/transports.h"

namespace {

// What is behind the engine's pointers.
struct Owned {
  std::shared_ptr<nacre::worker::FeatureFile> features;
  std::unique_ptr<nacre::model::FutureHeads> heads;
  std::unique_ptr<nacre::model::FeatureDrafter> drafter;
  std::unique_ptr<nacre::model::EagleProjection> projection;
};

void Pace(const nacre::worker::PaceOfSteps& times, int hidden_size,
          Owned* owned) {
  spdlog::info("each of its calls is paced to {} (rows:ms)", times.text);
  const nacre::model::PaceOfCalls pace(*times.times);
  if (owned->heads != nullptr) {
    owned->heads = std::make_unique<nacre::model::PacedHeads>(
        std::move(owned->heads), hidden_size, pace);
  }
  if (owned->drafter != nullptr) {
    owned->drafter = std::make_unique<nacre::model::PacedDrafter>(
        std::move(owned->drafter), pace);
  }
}

absl::Status LoadAhead(const nacre::worker::OwnDraftFlags& own,
                       nacre::model::LanguageModel* model, Owned* owned) {
  if (own.kind() != nullptr) {
    NACRE_ASSIGN_OR_RETURN(
        nacre::worker::OwnDraft draft,
        nacre::worker::LoadOwnDraft(*own.kind(), own.path(), model));
    spdlog::info("{}: {}", own.kind()->name, draft.description);
    owned->heads = std::move(draft.heads);
    owned->drafter = std::move(draft.drafter);
  }
  if (own.step_time.times.has_value()) {
    Pace(own.step_time, model->info().hidden_size, owned);
  }
  return absl::OkStatus();
}

// What it computes for drafts that run elsewhere.
absl::Status LoadPublished(const nacre::worker::WorkerOptions& options,
                           nacre::model::LanguageModel* model, Owned* owned) {
  const std::string& draft = options.features.draft;
  if (draft.empty()) return absl::OkStatus();
  auto projection = nacre::model::EagleProjection::Load(draft, model);
  if (!projection.ok()) {
    return nacre::worker::ExplainDraft(draft, nacre::model::DraftKind::kEagle,
                                       "publish-features", projection.status());
  }
  owned->projection = *std::move(projection);
  spdlog::info("features for drafts: {}", owned->projection->description());
  return absl::OkStatus();
}

// Flags that are not a target's, or do not go together.
absl::Status Check(const nacre::worker::WorkerOptions& options) {
  if (!options.policies.files.empty()) {
    return absl::InvalidArgumentError(
        "--policy-file is for draft workers: a target drafts nothing");
  }
  if (!options.record_features.empty() && options.record_hidden.empty()) {
    return absl::InvalidArgumentError(
        "--record-features of a target needs --record-hidden: hidden states "
        "are all that it records");
  }
  if (!options.features.draft.empty() && options.own_drafts.kind() != nullptr) {
    // Each would have the model keep other features.
    return absl::InvalidArgumentError(absl::StrCat(
        "--publish-features and --", options.own_drafts.kind()->flag,
        " exclude each other: one EAGLE draft is elsewhere, or one draft "
        "here"));
  }
  return absl::OkStatus();
}

absl::StatusOr<nacre::worker::WorkerParts> Build(
    nacre::model::LanguageModel* model,
    const nacre::worker::WorkerOptions& worker_options,
    const nacre::rpc::ChannelSecurity&) {
  if (model->row_reader() != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(worker_options.model_dir,
                     " is a GliDe draft, no target: it would answer without "
                     "what it reads"));
  }
  std::shared_ptr<nacre::worker::FeatureFile> features;
  if (!worker_options.record_features.empty()) {
    NACRE_ASSIGN_OR_RETURN(features, nacre::worker::FeatureFile::Open(
                                         worker_options.record_features));
    NACRE_RETURN_IF_ERROR(features->AddHidden(worker_options.record_hidden,
                                              model->info().hidden_size));
  }
  auto owned = std::make_shared<Owned>();
  const nacre::worker::OwnDraftFlags& own = worker_options.own_drafts;
  owned->features = features;
  NACRE_RETURN_IF_ERROR(LoadAhead(own, model, owned.get()));
  NACRE_RETURN_IF_ERROR(LoadPublished(worker_options, model, owned.get()));
  using nacre::target_worker::TargetEngine;
  auto service = std::make_unique<nacre::target_worker::TargetService>();
  TargetEngine::Options options;
  options.model = model;
  options.budget.even_positions = model->info().even_positions;
  options.budget.prefill_chunk = worker_options.pace.prefill_chunk;
  options.send = [service = service.get()](
                     nacre::worker::StreamId stream,
                     nacre::target_worker::TargetEvents events) {
    service->Send(stream, std::move(events));
  };
  options.deliver = [service =
                         service.get()](nacre::worker::Delivery delivery) {
    service->Deliver(delivery);
  };
  NACRE_ASSIGN_OR_RETURN(nacre::worker::ServedPublisher tensors,
                         worker_options.tensors.transport->make_publisher(
                             worker_options.compute.backend));
  options.tensors = tensors.publisher.get();
  options.features = features.get();
  options.gate_timeouts = worker_options.gate_timeouts;
  options.suffixes = own.suffix_drafter;
  options.suffix_cache_bytes = own.suffix_cache_bytes;
  options.heads = owned->heads.get();
  options.head_tree = own.medusa_tree;
  options.feature_drafter = owned->drafter.get();
  options.feature_source = owned->projection.get();
  options.feature_bytes = worker_options.features.cache_bytes;
  options.spin_ns = absl::ToInt64Nanoseconds(worker_options.pace.spin);
  auto engine = std::make_unique<TargetEngine>(std::move(options));
  service->set_engine(engine.get());
  return nacre::worker::WorkerParts{.owned = std::move(owned),
                                    .tensors = std::move(tensors),
                                    .service = std::move(service),
                                    .engine = std::move(engine)};
}

}  // namespace

int main(int argc, char** argv) {
  nacre::worker::WorkerProgram program;
  program.name = "nacre-target-worker";
  program.summary = "serves the target model of speculative decoding";
  program.role = nacre::wire::WorkerRole::kTarget;
  program.check = Check;
  program.build = Build;
  return nacre::worker::RunWorker(argc, argv, program);
}
