// The draft worker: drafts tokens with the draft model, ahead of the target. It
// can vanish at any moment without harm. The coordinator calls it, after this
// process has registered there:
//
//   nacre-draft-worker --model models/draft --coordinator 127.0.0.1:50051
//
// Serves nacre.v1.DraftWorker, grpc.health.v1.Health and reflection on
// --listen. SIGTERM drains: no new sessions, the open ones end, exit code 0.

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "draft_worker/draft_engine.h"
#include "draft_worker/draft_service.h"
#include "draft_worker/policy_library.h"
#include "worker/process/process.h"
#include "worker/tensors/transports.h"

namespace {

// By the engine.
struct Borrowed {
  nacre::draft_worker::PolicyLibrary policies;
  std::unique_ptr<nacre::worker::FeatureFile> features;
  std::unique_ptr<nacre::worker::TensorReader> tensors;
};

// What drafts at a target, beside its model.
absl::Status RefuseOwnDrafts(const nacre::worker::OwnDraftFlags& own) {
  if (own.kind() == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", own.kind()->flag, " is for target workers: ", own.kind()->reads));
}

// Flags that are a target's.
absl::Status Check(const nacre::worker::WorkerOptions& options) {
  NACRE_RETURN_IF_ERROR(RefuseOwnDrafts(options.own_drafts));
  if (options.prefill.by != nacre::kernels::kOwnPrefill) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prefill ", options.prefill.by,
                     " is for target workers: a draft's prompts are computed "
                     "as its other rows are"));
  }
  if (!options.features.draft.empty()) {
    return absl::InvalidArgumentError(
        "--publish-features is for target workers: they compute what a draft "
        "reads");
  }
  return absl::OkStatus();
}

// Null: nothing is recorded.
absl::StatusOr<std::unique_ptr<nacre::worker::FeatureFile>> OpenFeatures(
    const nacre::worker::WorkerOptions& options,
    const nacre::model::ModelInfo& model) {
  if (options.record_features.empty()) return nullptr;
  NACRE_ASSIGN_OR_RETURN(
      std::unique_ptr<nacre::worker::FeatureFile> features,
      nacre::worker::FeatureFile::Open(options.record_features));
  if (!options.record_hidden.empty()) {
    NACRE_RETURN_IF_ERROR(
        features->AddHidden(options.record_hidden, model.hidden_size));
  }
  return features;
}

absl::StatusOr<nacre::worker::WorkerParts> Build(
    nacre::model::LanguageModel* model,
    const nacre::worker::WorkerOptions& worker_options,
    const nacre::rpc::ChannelSecurity& peers) {
  using nacre::draft_worker::DraftEngine;
  using nacre::draft_worker::PolicyLibrary;
  NACRE_ASSIGN_OR_RETURN(
      PolicyLibrary loaded,
      PolicyLibrary::Load(worker_options.policies.files, model->info()));
  auto borrowed = std::make_shared<Borrowed>();
  borrowed->policies = std::move(loaded);
  NACRE_ASSIGN_OR_RETURN(borrowed->features,
                         OpenFeatures(worker_options, model->info()));
  NACRE_ASSIGN_OR_RETURN(borrowed->tensors,
                         worker_options.tensors.transport->make_reader(
                             peers, worker_options.compute.backend));
  auto service = std::make_unique<nacre::draft_worker::DraftService>();
  DraftEngine::Options options;
  options.model = model;
  options.policies = &borrowed->policies;
  options.features = borrowed->features.get();
  nacre::worker::TensorReader* const tensors = borrowed->tensors.get();
  options.tensors = tensors;
  options.budget.prefill_chunk = worker_options.pace.prefill_chunk;
  options.budget.even_positions = model->info().even_positions;
  options.send = [service = service.get()](
                     nacre::worker::StreamId stream,
                     nacre::draft_worker::DraftEvents events) {
    service->Send(stream, std::move(events));
  };
  options.deliver = [service =
                         service.get()](nacre::worker::Delivery delivery) {
    service->Deliver(delivery);
  };
  options.spin_ns = absl::ToInt64Nanoseconds(worker_options.pace.spin);
  auto engine = std::make_unique<DraftEngine>(std::move(options));
  service->set_engine(engine.get());
  auto files = borrowed->policies.files();
  const bool drafts_chains = !engine->grows_trees();
  auto tensor_use = [engine = engine.get()] { return engine->tensor_use(); };
  return nacre::worker::WorkerParts{.owned = std::move(borrowed),
                                    .tensor_reader = tensors,
                                    .tensor_use = std::move(tensor_use),
                                    .service = std::move(service),
                                    .engine = std::move(engine),
                                    .policy_files = std::move(files),
                                    .drafts_chains = drafts_chains};
}

}  // namespace

int main(int argc, char** argv) {
  nacre::worker::WorkerProgram program;
  program.name = "nacre-draft-worker";
  program.summary = "serves the draft model of speculative decoding";
  program.role = nacre::wire::WorkerRole::kDraft;
  program.check = Check;
  program.build = Build;
  return nacre::worker::RunWorker(argc, argv, program);
}
