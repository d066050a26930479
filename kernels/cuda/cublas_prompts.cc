#include "kernels/cuda/cublas_prompts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "kernels/cuda/prompt_rows.h"

namespace nacre::kernels::cuda {
namespace {

// Results of whole chunks go where they belong if rows begin at 16 bytes there.
constexpr int kAlignedOutputs = 4;

size_t Elements(int rows, int cols) {
  return static_cast<size_t>(rows) * static_cast<size_t>(cols);
}

// FNV-1a.
uint64_t HashOf(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace

int64_t CublasPrompts::AddedBytes(int rows, int cols) const {
  return int64_t{rows} * PaddedInputs(cols) *
         static_cast<int64_t>(sizeof(uint16_t));
}

absl::StatusOr<std::shared_ptr<const CublasLt::Product>>
CublasPrompts::ProductOf(const CublasLt::Shape& shape) {
  for (const Planned& planned : planned_) {
    if (planned.shape == shape) return planned.product;
  }
  NACRE_ASSIGN_OR_RETURN(std::shared_ptr<const CublasLt::Product> product,
                         library_->Plan(shape));
  planned_.push_back({shape, product});
  return product;
}

absl::Status CublasPrompts::Add(PackedMatrix* w) {
  auto* const matrix = static_cast<CudaMatrix*>(w);
  if (matrix->format() != GemmFormat::kBf16) {
    return absl::InvalidArgumentError(
        "--prefill cublas multiplies bf16 weights: those of the model's layers "
        "are kept in another type");
  }
  device_->MakeCurrent();
  const int outputs = matrix->rows();
  const int inputs = matrix->padded_cols();
  auto prompt = std::make_unique<PromptWeights>();
  NACRE_ASSIGN_OR_RETURN(prompt->product, ProductOf({outputs, inputs, kChunk}));
  NACRE_ASSIGN_OR_RETURN(
      prompt->rows,
      device_->Allocate(static_cast<size_t>(AddedBytes(outputs, inputs))));
  if (!device_->Grow(Elements(kChunk, inputs) * sizeof(uint16_t),
                     &activations_) ||
      !device_->Grow(Elements(kChunk, outputs) * sizeof(float), &results_) ||
      !device_->Check(UnpackRows(device_->queue(), matrix->data(), outputs,
                                 inputs, matrix->pairs_apart(),
                                 static_cast<uint16_t*>(prompt->rows->data())),
                      "unpacking weights")) {
    return device_->Synchronize();
  }
  // The library loads kernels when it first needs them: before it serves.
  NACRE_RETURN_IF_ERROR(
      prompt->product->Multiply(activations_->data(), prompt->rows->data(),
                                results_->f32(), device_->stream()));
  matrix->set_prompt(std::move(prompt));
  return absl::OkStatus();
}

void CublasPrompts::SetRows(absl::Span<const PromptRun> runs) {
  runs_.assign(runs.begin(), runs.end());
}

std::string CublasPrompts::numerics() const {
  std::string text = absl::StrCat("prefillcublas", library_->version());
  if (planned_.empty()) return text;
  // The library promises the same bits on the same architecture with as many
  // multiprocessors.
  std::string decides = absl::StrCat(device_->multiprocessors());
  for (const Planned& planned : planned_) {
    absl::StrAppend(&decides, ";", planned.shape.outputs, "x",
                    planned.shape.inputs, "x", planned.shape.rows, ":",
                    planned.product->algorithm());
  }
  absl::StrAppendFormat(&text, "-%016x", HashOf(decides));
  return text;
}

bool CublasPrompts::Check(const absl::Status& status) {
  return status.ok() || device_->Check(cudaErrorUnknown, status.message());
}

void CublasPrompts::Multiply(WriteRounded write, const PromptRun& run,
                             const CudaMatrix& w, const float* residual,
                             float* y) {
  const PromptWeights& weights = *w.prompt();
  const int outputs = w.rows();
  for (int done = 0; done < run.count && device_->ok();) {
    const int row = run.first_row + done;
    const int place = (run.position + done) % kChunk;
    const int count = std::min(run.count - done, kChunk - place);
    const size_t first = Elements(row, outputs);
    auto* const inputs = static_cast<uint16_t*>(activations_->data());
    const bool in_place = count == kChunk && residual == nullptr &&
                          outputs % kAlignedOutputs == 0;
    float* const results = in_place ? y + first : results_->f32();
    if (!device_->Check(write(device_->queue(), row, count,
                              inputs + Elements(place, w.padded_cols())),
                        "rounding activations") ||
        !Check(weights.product->Multiply(inputs, weights.rows->data(), results,
                                         device_->stream()))) {
      return;
    }
    if (!in_place &&
        !device_->Check(
            CopyAndAdd(device_->queue(), results + Elements(place, outputs),
                       residual == nullptr ? nullptr : residual + first,
                       Elements(count, outputs), y + first),
            "rows of a prompt")) {
      return;
    }
    done += count;
  }
}

}  // namespace nacre::kernels::cuda
