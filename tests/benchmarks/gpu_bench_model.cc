#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "kernels/backend_factory.h"
#include "kernels/weight_type.h"
#include "model/kv_pool.h"
#include "tests/benchmarks/gpu_bench.h"
#include "tests/benchmarks/machine_limits.h"

namespace nacre::model {
namespace {

using Json = nlohmann::ordered_json;
using kernels::Median;
using kernels::Seconds;

constexpr int kPromptRepetitions = 3;
// Loading at least so fast, and then a run of this length, must fit.
constexpr double kLoadBytesPerSecond = 2e9;
constexpr double kRunSeconds = 5;

double BytesPerWeight(const std::string& weights) {
  if (weights == "f32") return 4;
  if (weights == "int8") return 1 + 2.0 / 64;
  if (weights == "fp8") return 1;
  if (weights == "int4") return 0.5 + 2.0 / 32;
  return 2;
}

class ModelBench {
 public:
  ModelBench(const GpuBenchPlan& plan, LanguageModel* model)
      : plan_(plan), model_(model) {
    longest_ = *std::max_element(plan.prompts.begin(), plan.prompts.end());
    most_rows_ = *std::max_element(plan.rows.begin(), plan.rows.end());
    const int count = std::max(longest_, plan.decode_context + most_rows_);
    for (int i = 0; i < count; ++i) {
      tokens_.push_back(
          static_cast<int32_t>(int64_t{i} * 7919 % model->info().vocab_size));
    }
  }

  // Positions that all of it needs at a time.
  static int64_t KvTokens(const GpuBenchPlan& plan) {
    const int64_t prompt =
        *std::max_element(plan.prompts.begin(), plan.prompts.end());
    const int64_t rows = *std::max_element(plan.rows.begin(), plan.rows.end());
    return prompt + plan.decode_context + rows + 2 * KvPool::kBlockSize;
  }

  absl::Status Prepare() {
    NACRE_ASSIGN_OR_RETURN(
        sequence_, model_->NewSequence(plan_.decode_context + most_rows_));
    return Run(sequence_.get(), plan_.decode_context, 0).status();
  }

  // Seconds of a step of rows after the context: with all logits on the host,
  // or with nothing but a token of each row, drawn on the device.
  absl::StatusOr<double> Step(int rows, bool draw) {
    sequence_->Truncate(plan_.decode_context);
    draws_.clear();
    for (int row = 0; draw && row < rows; ++row) draws_.push_back(DrawOf(row));
    const double start = Seconds();
    NACRE_RETURN_IF_ERROR(Run(sequence_.get(), rows, rows).status());
    const double seconds = Seconds() - start;
    draws_.clear();
    return seconds;
  }

  // `prompt_positions`: of them, those that are computed as a prompt's.
  absl::StatusOr<double> Prompt(int rows, int prompt_positions) {
    NACRE_ASSIGN_OR_RETURN(
        const auto sequence,
        model_->NewPromptSequence(prompt_positions, rows, 0, {}));
    const double start = Seconds();
    NACRE_RETURN_IF_ERROR(Run(sequence.get(), rows, 1).status());
    return Seconds() - start;
  }

  // Seconds a token of a draft: one row a step, each token drawn on the device
  // and fed to the next step, which is queued `ahead` of it or not. Appends the
  // tokens.
  absl::StatusOr<double> DraftLoop(bool ahead, std::vector<int32_t>* drawn) {
    sequence_->Truncate(plan_.decode_context);
    int32_t token = tokens_.front();
    const double start = Seconds();
    for (int step = 0; step < most_rows_; ++step) {
      const absl::optional<TokenDraw> draw = DrawOf(step);
      SequenceRows row = {sequence_.get(), {&token, 1}, 1, {&draw, 1}, {}};
      if (ahead && step + 1 < most_rows_) row.next_draw = DrawOf(step + 1);
      NACRE_RETURN_IF_ERROR(model_->Forward({&row, 1}).status());
      token = model_->drawn_tokens().front();
      drawn->push_back(token);
    }
    return (Seconds() - start) / most_rows_;
  }

  // Whether the most rows have the same logits, bit for bit, in one step and in
  // one each, and the end of a prompt in one piece and in pieces.
  absl::StatusOr<bool> IsBatchInvariant() {
    sequence_->Truncate(plan_.decode_context);
    NACRE_ASSIGN_OR_RETURN(const std::vector<float> together,
                           Logits(sequence_.get(), most_rows_, most_rows_));
    sequence_->Truncate(plan_.decode_context);
    std::vector<float> alone;
    for (int row = 0; row < most_rows_; ++row) {
      NACRE_ASSIGN_OR_RETURN(const std::vector<float> logits,
                             Logits(sequence_.get(), 1, 1));
      alone.insert(alone.end(), logits.begin(), logits.end());
    }
    if (!SameBits(together, alone)) return false;
    NACRE_ASSIGN_OR_RETURN(const bool own, IsTheSameInPieces(0));
    NACRE_ASSIGN_OR_RETURN(const bool prompt,
                           IsTheSameInPieces(plan_.prompts.front() - 1));
    return own && prompt;
  }

 private:
  absl::StatusOr<bool> IsTheSameInPieces(int prompt_positions) {
    const int rows = plan_.prompts.front();
    NACRE_ASSIGN_OR_RETURN(
        const auto whole,
        model_->NewPromptSequence(prompt_positions, rows, 0, {}));
    NACRE_ASSIGN_OR_RETURN(const std::vector<float> end,
                           Logits(whole.get(), rows, 1));
    whole->Truncate(0);
    std::vector<float> pieces_end;
    for (int piece = 1; whole->length() < rows; piece = 2 * piece + 1) {
      NACRE_ASSIGN_OR_RETURN(
          pieces_end,
          Logits(whole.get(), std::min(piece, rows - whole->length()), 1));
    }
    return SameBits(end, pieces_end);
  }

  // Of what follows row `row` after the context.
  TokenDraw DrawOf(int row) const {
    return {/*seed=*/1, plan_.decode_context + row + 1, /*temperature=*/1.0f,
            model_->info().vocab_size};
  }

  static bool SameBits(const std::vector<float>& a,
                       const std::vector<float>& b) {
    return a.size() == b.size() &&
           std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  // Each position has its own token, however it is fed.
  absl::StatusOr<absl::Span<const float>> Run(Sequence* sequence, int rows,
                                              int logits) {
    const SequenceRows batch = {
        sequence,
        absl::MakeConstSpan(tokens_).subspan(
            static_cast<size_t>(sequence->length()), static_cast<size_t>(rows)),
        logits,
        draws_,
        {}};
    return model_->Forward({&batch, 1});
  }

  absl::StatusOr<std::vector<float>> Logits(Sequence* sequence, int rows,
                                            int logits) {
    NACRE_ASSIGN_OR_RETURN(const absl::Span<const float> values,
                           Run(sequence, rows, logits));
    return std::vector<float>(values.begin(), values.end());
  }

  const GpuBenchPlan& plan_;
  LanguageModel* const model_;
  int longest_ = 0;
  int most_rows_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<absl::optional<TokenDraw>> draws_;  // of all rows, or none
  std::unique_ptr<Sequence> sequence_;
};

// Fills in `json`, a list.
absl::Status MeasureSteps(const GpuBench& bench, double bytes, bool draw,
                          ModelBench* model, Json* json) {
  const std::vector<int>& row_counts = bench.plan.rows;
  std::vector<std::vector<double>> times(row_counts.size());
  for (int i = 0; i <= bench.plan.repetitions; ++i) {
    for (size_t c = 0; c < row_counts.size(); ++c) {
      NACRE_ASSIGN_OR_RETURN(const double seconds,
                             model->Step(row_counts[c], draw));
      if (i > 0) times[c].push_back(seconds);  // the first allocates
    }
  }
  std::printf("%s\n%6s %10s %8s %10s %9s %10s\n",
              draw ? "tokens drawn on the device" : "all logits on the host",
              "rows", "ms", "GB/s", "% of read", "to 1 row", "tokens/s");
  const double one_row = Median(times[0]);
  for (size_t c = 0; c < row_counts.size(); ++c) {
    const double seconds = Median(times[c]);
    const double rate = bytes / seconds;
    std::printf("%6d %10.3f %8.0f %10.1f %9.3f %10.1f\n", row_counts[c],
                seconds * 1e3, rate * 1e-9, 100 * rate / bench.limits.read,
                seconds / one_row, row_counts[c] / seconds);
    json->push_back({{"rows", row_counts[c]},
                     {"seconds", seconds},
                     {"of_read_bandwidth", rate / bench.limits.read},
                     {"to_one_row", seconds / one_row},
                     {"tokens_per_second", row_counts[c] / seconds}});
  }
  return absl::OkStatus();
}

// By `prefill`, as of BackendOptions.
absl::Status MeasurePrompts(const GpuBench& bench, double weights,
                            const std::string& prefill, ModelBench* model,
                            Json* json) {
  for (const int rows : bench.plan.prompts) {
    std::vector<double> times;
    for (int i = 0; i <= kPromptRepetitions; ++i) {
      NACRE_ASSIGN_OR_RETURN(
          const double seconds,
          model->Prompt(rows, prefill == kernels::kOwnPrefill ? 0 : rows - 1));
      if (i > 0) times.push_back(seconds);
    }
    const double seconds = Median(times);
    const double rate = 2 * weights * rows / seconds;
    std::printf(
        "prompt of %d (%s): %.1f ms, %.0f tokens/s, %.0f TFLOP/s in "
        "matrices, %.1f %% of bf16\n",
        rows, prefill.c_str(), seconds * 1e3, rows / seconds, rate * 1e-12,
        100 * rate / bench.limits.bf16());
    (*json)["prompts"].push_back({{"rows", rows},
                                  {"prefill", prefill},
                                  {"seconds", seconds},
                                  {"tokens_per_second", rows / seconds},
                                  {"operations_per_second", rate},
                                  {"of_bf16", rate / bench.limits.bf16()}});
  }
  return absl::OkStatus();
}

absl::Status MeasureDraftLoop(const GpuBench& bench, ModelBench* model,
                              Json* json) {
  std::vector<double> times[2];  // not ahead, ahead
  std::vector<int32_t> drawn[2];
  for (int i = 0; i <= bench.plan.repetitions; ++i) {
    for (const bool ahead : {false, true}) {
      drawn[ahead].clear();
      NACRE_ASSIGN_OR_RETURN(const double seconds,
                             model->DraftLoop(ahead, &drawn[ahead]));
      if (i > 0) times[ahead].push_back(seconds);
    }
  }
  if (drawn[0] != drawn[1]) {
    return absl::InternalError("steps that are queued ahead draw other tokens");
  }
  std::printf("draft loop: %.0f us a token, %.0f us without queueing ahead\n",
              Median(times[1]) * 1e6, Median(times[0]) * 1e6);
  (*json)["draft_loop"] = {{"seconds_per_token", Median(times[1])},
                           {"without_queueing", Median(times[0])}};
  return absl::OkStatus();
}

// Fills in `json`.
absl::Status MeasureModel(const GpuBench& bench, const GpuModel& model,
                          const RandomLlama& llama, Json* json) {
  kernels::BackendOptions options;
  options.kind = "cuda";
  options.device = bench.plan.device;
  options.weights = model.weights;
  options.kv_type = bench.plan.kv_type;
  options.bf16_checkpoint = true;  // BenchGpuModel's llama
  options.graphs = bench.plan.graphs;
  options.overlap = bench.plan.overlap;
  options.fusion = bench.plan.fusion;
  options.persistent = bench.plan.persistent;
  options.warpgroup_attention = bench.plan.warpgroup_attention;
  if (model.weights == "bf16") options.prefill = bench.plan.prefill;
  options.cublas_library = bench.plan.cublas_library;
  auto created = kernels::CreateBackend(options);
  if (absl::IsFailedPrecondition(created.status()) &&
      options.prefill != kernels::kOwnPrefill) {
    (*json)["without_cublas"] = std::string(created.status().message());
    options.prefill = kernels::kOwnPrefill;
    created = kernels::CreateBackend(options);
  }
  NACRE_RETURN_IF_ERROR(created.status());
  const std::unique_ptr<kernels::Backend> backend = *std::move(created);
  backend->BindComputeThread();
  const ModelConfig& config = llama.config();
  ModelOptions model_options;
  model_options.kv_cache_bytes =
      ModelBench::KvTokens(bench.plan) *
      KvPool::BytesPerToken({config.num_hidden_layers,
                             config.num_key_value_heads, config.head_dim,
                             backend->kv_type()});
  const double start = Seconds();
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<LanguageModel> loaded,
                         llama.Load(backend.get(), model_options));
  const double load_seconds = Seconds() - start;
  const double weights = MatrixWeights(config);
  const double bytes = weights * BytesPerWeight(model.weights);
  const char* const kv_type = kernels::KvTypeName(backend->kv_type());
  std::printf("%s; %s KV; read in %.1f s, a step reads %.1f GB\n",
              loaded->info().description.c_str(), kv_type, load_seconds,
              bytes * 1e-9);
  (*json)["kv_type"] = kv_type;
  (*json)["load_seconds"] = load_seconds;
  (*json)["step_bytes"] = bytes;
  (*json)["context"] = bench.plan.decode_context;
  ModelBench model_bench(bench.plan, loaded.get());
  NACRE_RETURN_IF_ERROR(model_bench.Prepare());
  NACRE_RETURN_IF_ERROR(MeasureSteps(bench, bytes, /*draw=*/true, &model_bench,
                                     &(*json)["drawn_steps"]));
  NACRE_RETURN_IF_ERROR(MeasureSteps(bench, bytes, /*draw=*/false, &model_bench,
                                     &(*json)["steps"]));
  NACRE_RETURN_IF_ERROR(MeasureDraftLoop(bench, &model_bench, json));
  const double head = 1.0 * config.vocab_size * config.hidden_size;
  NACRE_RETURN_IF_ERROR(MeasurePrompts(
      bench, weights - head, kernels::kOwnPrefill, &model_bench, json));
  if (options.prefill != kernels::kOwnPrefill) {
    NACRE_RETURN_IF_ERROR(MeasurePrompts(bench, weights - head, options.prefill,
                                         &model_bench, json));
  }
  NACRE_ASSIGN_OR_RETURN(const bool invariant, model_bench.IsBatchInvariant());
  std::printf("rows alone and in batches: %s\n",
              invariant ? "the same bits" : "DIFFERENT BITS");
  (*json)["batch_invariant"] = invariant;
  const kernels::GraphCounts graphs = backend->graph_counts();
  std::printf(
      "steps: %llu as one kernel, %llu as a kept graph, %llu as a new "
      "one, %llu without\n",
      static_cast<unsigned long long>(graphs.persistent),
      static_cast<unsigned long long>(graphs.replayed),
      static_cast<unsigned long long>(graphs.captured),
      static_cast<unsigned long long>(graphs.plain));
  (*json)["graphs"] = {{"persistent", graphs.persistent},
                       {"replayed", graphs.replayed},
                       {"captured", graphs.captured},
                       {"plain", graphs.plain}};
  return absl::OkStatus();
}

}  // namespace

Json BenchGpuModel(const GpuBench& bench, const GpuModel& model) {
  std::printf("\n== %s, %s weights, after %d\n", model.name.c_str(),
              model.weights.c_str(), bench.plan.decode_context);
  std::fflush(stdout);
  Json json = {{"name", model.name}, {"weights", model.weights}};
  const LlamaShape& shape = model.shape;
  const double parameters =
      1.0 * shape.layers * shape.hidden *
          (2.0 * shape.heads * shape.head_dim +
           2.0 * shape.kv_heads * shape.head_dim + 3.0 * shape.intermediate) +
      2.0 * shape.vocab * shape.hidden;
  const double needed =
      parameters * BytesPerWeight(model.weights) / kLoadBytesPerSecond +
      kRunSeconds;
  if (bench.budget.left() < needed) {
    json["left_out"] = absl::StrFormat("it may take %.0f s, %.0f s are left",
                                       needed, bench.budget.left());
    std::printf("left out: %s\n", json["left_out"].get<std::string>().c_str());
    return json;
  }
  const RandomLlama llama(shape, kernels::DType::kBF16);
  const absl::Status status = MeasureModel(bench, model, llama, &json);
  if (!status.ok()) {
    const char* const what =
        absl::IsResourceExhausted(status) ? "skipped" : "failed";
    json[what] = std::string(status.message());
    std::printf("%s: %s\n", what, std::string(status.message()).c_str());
  }
  return json;
}

}  // namespace nacre::model
