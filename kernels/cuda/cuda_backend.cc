#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_wide.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/paged_kv.h"
#include "kernels/host_memory.h"

namespace nacre::kernels {
namespace {

// Rows of a step that is worth a graph. Steps of more are prompts. They differ
// in their lengths and keep the device busy for longer than it takes to queue
// them.
constexpr size_t kMostGraphRows = 64;

// Rows that cost a step next to nothing: kernels take rows by 8 or more at a
// time. Few of them are few graphs.
constexpr int kStepSizes[] = {1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64};

// Room for all paths that steps keep at a time, so that it need not grow.
constexpr size_t kLeastMoveBytes = 1024 * sizeof(KvMove);

cuda::PagedKv PagedKvOf(const KvLayer& layer) {
  NACRE_CHECK(layer.head_dim <= cuda::kMostHeadDim,
              "head_dim exceeds kMostHeadDim");
  NACRE_CHECK(layer.head_dim % KvElementsPerWord(layer.type) == 0,
              "bf16 keys of an odd head_dim");
  return {layer.blocks, layer.num_kv_heads, layer.block_size, layer.head_dim,
          layer.type};
}

// What steps begin with that have as many rows as a worker's may have, of
// sessions that share no blocks. Made at once: to grow is to wait.
size_t MostInputBytes(const StepInputs& inputs) {
  // A token id, four of PagedBatch::Reserve, two tiles, a draw.
  constexpr size_t kRowBytes = 5 * sizeof(int32_t) +
                               2 * sizeof(cuda::AttentionTile) +
                               sizeof(cuda::DeviceDraw);
  const size_t values = (inputs.values.size() + inputs.contexts.size() - 1) /
                        inputs.contexts.size();
  return cuda::kPassRows * (values * sizeof(float) + kRowBytes) +
         static_cast<size_t>(inputs.layer->num_blocks) * sizeof(int32_t) +
         cuda::StepUpload::kMostGaps;
}

// Whether a step of so many rows is. `prompts`: those that it has; may be null.
bool IsRecorded(const CudaBackendOptions& options,
                const cuda::CublasPrompts* prompts, size_t rows) {
  // A recording takes our kernels alone.
  const bool has_prompts = prompts != nullptr && !prompts->runs().empty();
  return options.graphs && rows <= kMostGraphRows && !has_prompts;
}

}  // namespace

CudaBackend::CudaBackend(std::unique_ptr<cuda::Device> device,
                         std::unique_ptr<cuda::Staging> staging,
                         WeightType weight_type, DType kv_type,
                         CudaBackendOptions options,
                         std::unique_ptr<cuda::CublasLt> cublas)
    : CudaRowOps(std::move(device), std::move(staging)),
      weight_type_(weight_type),
      kv_type_(kv_type),
      options_(std::move(options)),
      persistent_(device_.get(), staging_.get(), &graphs_),
      step_(device_.get(), staging_.get()),
      batch_(device_.get(), staging_.get(), &step_),
      token_drawer_(device_.get(), staging_.get(), &step_),
      products_(device_.get(), options_.fusion,
                cublas == nullptr ? nullptr
                                  : std::make_unique<cuda::CublasPrompts>(
                                        device_.get(), std::move(cublas))) {}

std::string CudaBackend::numerics_id() const {
  const cuda::CublasPrompts* const prompts = products_.prompts();
  return absl::StrCat("cuda-", device_->sm(), WeightTypeSuffix(weight_type_),
                      kv_type_ == DType::kBF16 ? "-kvbf16-v3" : "-kvf32-v2",
                      prompts == nullptr ? "" : "-",
                      prompts == nullptr ? "" : prompts->numerics());
}

std::string CudaBackend::description() const {
  return absl::StrCat("cuda (", device_->description(), ")");
}

const float* CudaBackend::SendInputs(const StepInputs& inputs) {
  const size_t rows = inputs.contexts.size();
  if (rows == 0 || !device_->ok()) return nullptr;
  const KvLayer& layer = *inputs.layer;
  const cuda::AttentionCut cut = CutOf(inputs.num_heads, layer);
  // Here: in the middle of the first step it would cut its kernels in two.
  if (!MakeRoom(cut, layer)) return nullptr;
  step_.Clear();
  step_.Add(cuda::StepPart::kValues, inputs.values.data(),
            inputs.values.size() * sizeof(float));
  // Steps that embed what was drawn find what follows in the same place.
  step_.Add(cuda::StepPart::kTokenIds, inputs.token_ids.data(),
            inputs.token_ids.size() * sizeof(int32_t), rows * sizeof(int32_t));
  batch_.AddToStep(inputs.contexts, layer.block_size,
                   PlanAttention(inputs.contexts, cut).tiles);
  token_drawer_.AddToStep(inputs.draws);
  if (!step_.Send(MostInputBytes(inputs))) return nullptr;
  return static_cast<const float*>(step_.Find(cuda::StepPart::kValues));
}

void CudaBackend::RunStep(int rows, absl::FunctionRef<void()> ops) {
  if (!IsRecorded(options_, products_.prompts(), static_cast<size_t>(rows))) {
    return ops();
  }
  cuda::StepQueue* steps = &graphs_;
  if (options_.persistent) steps = &persistent_;
  device_->BeginStep(steps);
  ops();
  device_->EndStep();
}

GraphCounts CudaBackend::graph_counts() const {
  GraphCounts counts = graphs_.counts();
  counts.persistent = persistent_.count();
  return counts;
}

absl::Span<const int> CudaBackend::step_sizes() const {
  if (!options_.graphs) return {};
  return kStepSizes;
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> CudaBackend::PackFor(
    absl::Span<const HostMatrix> parts, PackHints hints) {
  device_->MakeCurrent();
  NACRE_ASSIGN_OR_RETURN(
      std::unique_ptr<cuda::CudaMatrix> matrix,
      cuda::CudaMatrix::Create(parts, weight_type_, device_.get(),
                               staging_.get(), hints));
  if (!products_.Reserve(*matrix)) return device_->Synchronize();
  return matrix;
}

absl::StatusOr<std::unique_ptr<PackedTable>> CudaBackend::PackTable(
    const HostMatrix& table) {
  device_->MakeCurrent();
  return cuda::CudaTable::Create(table, device_.get(), staging_.get());
}

void CudaBackend::MatMul(const float* x, int rows, const PackedMatrix& w,
                         float* y) {
  products_.Multiply(x, rows, static_cast<const cuda::CudaMatrix&>(w), nullptr,
                     y);
}

void CudaBackend::MatMulAdd(const float* x, int rows, const PackedMatrix& w,
                            const float* residual, float* y) {
  products_.Multiply(x, rows, static_cast<const cuda::CudaMatrix&>(w), residual,
                     y);
}

void CudaBackend::NormMatMul(const float* x, int rows, const float* weight,
                             float epsilon, const PackedMatrix& w,
                             float* normed, float* y) {
  if (rows == 0 || !device_->ok()) return;
  const auto& matrix = static_cast<const cuda::CudaMatrix&>(w);
  if (!matrix.format().has_value()) {
    RmsNorm(x, rows, w.cols(), weight, epsilon, normed);
    return products_.MultiplyF32(normed, rows, matrix, nullptr, y);
  }
  const auto normalize = [&](const cuda::Queue& queue, int first, int count,
                             uint16_t* out) {
    return cuda::NormalizeAndRoundRows(
        queue, cuda::RowsFrom(x, first, w.cols()), count, w.cols(),
        matrix.padded_cols(), weight, epsilon, out);
  };
  products_.MultiplyRounded(normalize, rows, matrix, nullptr, y);
}

void CudaBackend::NormSiluMatMulAdd(const NormedRows& in,
                                    const PackedMatrix& gate_up,
                                    const PackedMatrix& down,
                                    const float* residual,
                                    const GateScratch& scratch, float* y) {
  if (in.rows == 0 || !device_->ok()) return;
  const auto& first = static_cast<const cuda::CudaMatrix&>(gate_up);
  const auto& second = static_cast<const cuda::CudaMatrix&>(down);
  if (!second.format().has_value() ||
      !products_.TakesPairs(in.rows, first, first.rows() / 2)) {
    return Backend::NormSiluMatMulAdd(in, gate_up, down, residual, scratch, y);
  }
  products_.MultiplyGated(in, first, second, residual, y);
}

void CudaBackend::SiluMatMulAdd(const float* gate_up, int rows,
                                const PackedMatrix& w, const float* residual,
                                float* gated, float* y) {
  if (rows == 0 || !device_->ok()) return;
  const auto& matrix = static_cast<const cuda::CudaMatrix&>(w);
  if (!matrix.format().has_value()) {
    SiluMul(gate_up, rows, w.cols(), gated);
    return products_.MultiplyF32(gated, rows, matrix, residual, y);
  }
  const auto gate = [&](const cuda::Queue& queue, int first, int count,
                        uint16_t* out) {
    return cuda::GateAndRoundRows(queue,
                                  cuda::RowsFrom(gate_up, first, 2 * w.cols()),
                                  count, w.cols(), matrix.padded_cols(), out);
  };
  products_.MultiplyRounded(gate, rows, matrix, residual, y);
}

void CudaBackend::Embed(const PackedTable& table, absl::Span<const int32_t> ids,
                        float* out) {
  CheckTokenIds(ids, table.rows());
  if (ids.empty() || !device_->ok()) return;
  const int32_t* sent = step_.Find(cuda::StepPart::kTokenIds, ids);
  if (sent == nullptr) {
    const size_t bytes = ids.size() * sizeof(int32_t);
    if (!device_->Grow(bytes, &token_ids_)) return;
    staging_->Upload(ids.data(), bytes, token_ids_->data());
    sent = static_cast<const int32_t*>(token_ids_->data());
  }
  EmbedDrawn(table, sent, static_cast<int>(ids.size()), out);
}

void CudaBackend::EmbedDrawn(const PackedTable& table, const int32_t* ids,
                             int count, float* out) {
  if (count == 0 || !device_->ok()) return;
  device_->Check(
      cuda::EmbedRows(device_->queue(),
                      static_cast<const cuda::CudaTable&>(table).table(), ids,
                      count, out),
      "embedding");
}

void CudaBackend::StoreKv(const float* k, const float* v, int row_stride,
                          absl::Span<const RowContext> contexts,
                          const KvLayer& layer) {
  const cuda::PagedKv kv = PagedKvOf(layer);
  if (contexts.empty() || !device_->ok()) return;
  const cuda::PagedRows rows = batch_.SendRows(contexts, layer.block_size);
  if (!device_->ok()) return;
  device_->Check(
      cuda::StoreKeysAndValues(device_->queue(), k, v, row_stride, rows, kv),
      "keys and values");
}

void CudaBackend::MoveKv(absl::Span<const KvMove> moves,
                         absl::Span<const KvLayer> layers) {
  const size_t bytes = moves.size() * sizeof(KvMove);
  if (moves.empty() || !device_->ok()) return;
  if (!device_->Grow(std::max(bytes, kLeastMoveBytes), &moves_)) return;
  staging_->Upload(moves.data(), bytes, moves_->data());
  for (const KvLayer& layer : layers) {
    if (!device_->ok()) return;
    device_->Check(
        cuda::MoveKeysAndValues(
            device_->queue(), static_cast<const KvMove*>(moves_->data()),
            static_cast<int>(moves.size()), PagedKvOf(layer)),
        "moving keys and values");
  }
}

void CudaBackend::RopeStoreKv(float* qkv, int num_heads, const float* cos,
                              const float* sin,
                              absl::Span<const RowContext> contexts,
                              const KvLayer& layer) {
  const cuda::PagedKv kv = PagedKvOf(layer);
  NACRE_CHECK(layer.head_dim % 2 == 0, "rotary embedding of an odd head_dim");
  if (contexts.empty() || !device_->ok()) return;
  const cuda::PagedRows rows = SendBatch(num_heads, contexts, layer);
  if (!device_->ok()) return;
  device_->Check(cuda::RotateAndStore(device_->queue(), qkv, num_heads, cos,
                                      sin, rows, kv),
                 "rotary embedding, keys and values");
}

cuda::PagedRows CudaBackend::SendBatch(int num_heads,
                                       absl::Span<const RowContext> contexts,
                                       const KvLayer& layer) {
  const cuda::AttentionCut cut = CutOf(num_heads, layer);
  if (!MakeRoom(cut, layer)) return {};
  const cuda::PagedRows rows = batch_.SendRows(contexts, layer.block_size);
  batch_.SendTiles(PlanAttention(contexts, cut).tiles);
  return rows;
}

void CudaBackend::NormMatMulRopeStoreKv(const NormedRows& in,
                                        const PackedMatrix& w,
                                        const float* bias,
                                        const HeadAngles& angles,
                                        absl::Span<const RowContext> contexts,
                                        const KvLayer& layer, float* qkv) {
  const auto& matrix = static_cast<const cuda::CudaMatrix&>(w);
  if (contexts.empty() || !device_->ok()) return;
  if (layer.head_dim % 2 != 0 ||
      !products_.TakesPairs(in.rows, matrix, layer.head_dim / 2)) {
    return Backend::NormMatMulRopeStoreKv(in, w, bias, angles, contexts, layer,
                                          qkv);
  }
  cuda::RotateOutputs to = {bias, angles.cos, angles.sin, angles.num_heads};
  to.kv = PagedKvOf(layer);
  to.rows = SendBatch(angles.num_heads, contexts, layer);
  if (!device_->ok()) return;
  products_.MultiplyAndRotate(in, matrix, to, qkv);
}

cuda::AttentionCut CudaBackend::CutOf(int num_heads,
                                      const KvLayer& layer) const {
  NACRE_CHECK(num_heads % layer.num_kv_heads == 0,
              "query heads are no multiple of the KV heads");
  cuda::AttentionCut cut;
  cut.tile_rows =
      cuda::AttentionTileRows(num_heads / layer.num_kv_heads, layer.type);
  cut.group = num_heads / layer.num_kv_heads;
  cut.num_heads = num_heads;
  cut.head_dim = layer.head_dim;
  cut.rule = cuda::SplitRuleOf(layer.type, layer.head_dim);
  cut.max_partial_bytes = options_.max_partial_bytes;
  if (layer.type == DType::kBF16 && layer.head_dim <= cuda::kMostWholeHeadDim) {
    const int blocks = options_.least_whole_blocks.value_or(
        device_->multiprocessors() * 3 / 4);
    cut.least_whole_tiles =
        (blocks + layer.num_kv_heads - 1) / layer.num_kv_heads;
  }
  return cut;
}

cuda::AttentionPlan CudaBackend::PlanAttention(
    absl::Span<const RowContext> contexts,
    const cuda::AttentionCut& cut) const {
  return cuda::PlanAttention(
      contexts, cut,
      /*repeats=*/IsRecorded(options_, products_.prompts(), contexts.size()));
}

bool CudaBackend::MakeRoom(const cuda::AttentionCut& cut,
                           const KvLayer& layer) {
  const int64_t positions = int64_t{layer.num_blocks} * layer.block_size;
  return batch_.Reserve(cuda::kPassRows, layer.num_blocks) &&
         device_->Grow(cuda::MostPartialBytes(cut, cuda::kPassRows, positions),
                       &partials_);
}

void CudaBackend::Attention(const float* q, int q_stride, int num_heads,
                            const AttentionRule& rule,
                            absl::Span<const RowContext> contexts,
                            const KvLayer& layer, float* out) {
  cuda::AttentionArgs args;
  args.kv = PagedKvOf(layer);
  if (contexts.empty() || !device_->ok()) return;
  const cuda::AttentionCut cut = CutOf(num_heads, layer);
  if (!MakeRoom(cut, layer)) return;
  const cuda::AttentionPlan plan = PlanAttention(contexts, cut);
  const cuda::AttentionTile* const sent_tiles = batch_.SendTiles(plan.tiles);
  args.rows = batch_.SendRows(contexts, layer.block_size);
  args.q = q;
  args.q_stride = q_stride;
  args.num_heads = num_heads;
  args.scale = rule.scale;
  args.window = rule.window;
  args.soft_cap = rule.soft_cap;
  args.out = out;
  const int rows = static_cast<int>(contexts.size());
  const int cols = num_heads * layer.head_dim;
  // Only the kernel that merges splits rounds.
  if (std::none_of(plan.chunks.begin(), plan.chunks.end(),
                   [](const cuda::AttentionChunk& chunk) {
                     return chunk.whole || chunk.max_splits == 1;
                   })) {
    args.rounded = products_.RoomForRounded(rows, cols);
  }
  for (const cuda::AttentionChunk& chunk : plan.chunks) {
    args.whole = chunk.whole;
    args.wide = options_.warpgroup_attention;
    args.tiles = sent_tiles + chunk.first_tile;
    args.num_tiles = chunk.num_tiles;
    args.first_row = chunk.first_row;
    args.num_rows = chunk.num_rows;
    args.max_tile_rows = chunk.max_tile_rows;
    args.max_splits = chunk.max_splits;
    const size_t bytes = chunk.whole ? 0
                                     : cuda::AttentionPartialBytes(
                                           chunk.num_rows, num_heads,
                                           layer.head_dim, chunk.max_splits);
    if (!device_->ok() || !device_->Grow(bytes, &partials_)) return;
    args.partials = partials_->f32();
    device_->Check(cuda::Attend(device_->queue(), args), "attention");
  }
  if (args.rounded != nullptr) products_.KeepRounded(out, rows, cols);
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(
    const cuda::DeviceOptions& device, WeightType weight_type, DType kv_type,
    CudaBackendOptions options) {
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<cuda::Device> opened,
                         cuda::Device::Open(device));
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<cuda::Staging> staging,
                         cuda::Staging::Create(opened.get()));
  if (options.persistent && !opened->cooperative()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--persistent-steps: ", opened->description(),
                     ", has no cooperative launches"));
  }
  if (options.warpgroup_attention &&
      !cuda::HasWideAttention(opened->compute_capability())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--warpgroup-attention: ", opened->description(),
        ", is not of compute capability 9.0, or this build has no code for "
        "it"));
  }
  std::unique_ptr<cuda::CublasLt> cublas;
  if (options.cublas_prompts) {
    auto library = cuda::OpenCublasLt(options.cublas_library);
    if (!library.ok()) {
      return absl::Status(
          library.status().code(),
          absl::StrCat("--prefill cublas: ", library.status().message()));
    }
    cublas = *std::move(library);
  }
  return std::make_unique<CudaBackend>(std::move(opened), std::move(staging),
                                       weight_type, kv_type, std::move(options),
                                       std::move(cublas));
}

}  // namespace nacre::kernels
