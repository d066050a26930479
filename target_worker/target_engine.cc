#include "target_worker/target_engine.h"

#include <utility>

#include "common/status_macros.h"
#include "target_worker/engine_session.h"

namespace nacre::target_worker {

TargetEngine::TargetEngine(Options options)
    : TypedSessionEngine({.canary_model = options.model,
                          .deliver = options.deliver,
                          .spin_ns = options.spin_ns,
                          .now_ns = options.now_ns},
                         options.send),
      options_(std::move(options)),
      suffixes_(options_.suffixes, options_.suffix_cache_bytes),
      heads_({.model = options_.model,
              .heads = options_.heads,
              .now_ns = options_.now_ns},
             options_.head_tree),
      features_({.model = options_.model,
                 .drafter = options_.feature_drafter,
                 .now_ns = options_.now_ns}),
      own_drafts_(&suffixes_),
      hidden_(options_.model, options_.tensors, options_.features),
      shelf_(options_.feature_source, options_.feature_bytes),
      rows_({.model = options_.model,
             .keys_values = options_.rows,
             .features = &shelf_,
             .tensors = options_.tensors},
            [this] { Wake(); }),
      sampler_(options_.model, &soundness_, &scratch_),
      planner_({.sessions = sessions_,
                .accounts = &accounts_,
                .sampler = &sampler_,
                .own = &own_drafts_},
               options_.budget, options_.model->shared_block_size()),
      verdicts_({.table = &table_,
                 .accounts = &accounts_,
                 .events = &events_,
                 .sampler = &sampler_,
                 .hidden = &hidden_}) {
  Publish();
}

TargetEngine::~TargetEngine() = default;

void TargetEngine::LearnStepTimes(absl::Span<const worker::StepTime> times) {
  for (const worker::StepTime& time : times) {
    planner_.Learn(time.rows, time.duration_ns);
  }
}

worker::WorkerState TargetEngine::Plan(int64_t now_ns,
                                       worker::StepOutcome* outcome) {
  hidden_.BeginStep();
  const worker::WorkerState state = planner_.Plan(now_ns, outcome);
  // After it: the prefix cache may have given some.
  rows_.Publish(sessions_);
  return state;
}

absl::StatusOr<bool> TargetEngine::Forward() {
  NACRE_ASSIGN_OR_RETURN(logits_,
                         options_.model->Forward(planner_.step().batch));
  return true;
}

void TargetEngine::Finish(int64_t start_ns, bool) {
  const Step& step = planner_.step();
  sampler_.SampleAll(step, logits_);
  soundness_.EndStep();
  const int64_t end_ns = now_ns_();
  // A chunk of a prompt makes a step another one.
  if (step.verify_rows == step.num_rows) {
    planner_.Learn(step.num_rows, end_ns - start_ns);
  }
  // Tails that arrived meanwhile may hold the token after the last row.
  TakeCommandsInStep();
  verdicts_.FinishStep(step, start_ns, end_ns);
  heads_.Look(step, planner_.row_price(), end_ns - start_ns);
  features_.Look(step, planner_.row_price(), end_ns - start_ns);
  shelf_.Take(step);
}

}  // namespace nacre::target_worker
