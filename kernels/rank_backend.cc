#include "kernels/rank_backend.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/staged_collective.h"

namespace nacre::kernels {

namespace {

// What ranks meet by on a device; null: it is the host.
std::unique_ptr<Collective> OnDevice(Backend* inner, Collective* host,
                                     std::unique_ptr<Collective> given) {
  if (inner->location() == Location::kHost || given != nullptr) return given;
  return std::make_unique<StagedCollective>(host, inner);
}

}  // namespace

// A matrix, or the parts of one that this rank multiplies.
class RankBackend::Matrix : public PackedMatrix {
 public:
  enum class Kind { kPlain, kInputs, kOutputs };

  Matrix(Kind kind, int rows, std::vector<std::unique_ptr<PackedMatrix>> parts)
      : kind_(kind), rows_(rows), parts_(std::move(parts)) {}

  int rows() const override { return rows_; }
  int cols() const override {
    return parts_.front()->cols() * static_cast<int>(parts_.size());
  }
  int64_t size_bytes() const override {
    int64_t bytes = 0;
    for (const auto& part : parts_) bytes += part->size_bytes();
    return bytes;
  }

  Kind kind() const { return kind_; }
  const PackedMatrix& part(size_t index) const { return *parts_[index]; }
  size_t num_parts() const { return parts_.size(); }

 private:
  const Kind kind_;
  const int rows_;
  const std::vector<std::unique_ptr<PackedMatrix>> parts_;  // of equal cols
};

class RankBackend::Table : public PackedTable {
 public:
  Table(const HostMatrix& shape, std::unique_ptr<PackedTable> table)
      : rows_(shape.rows), cols_(shape.cols), table_(std::move(table)) {}

  int rows() const override { return rows_; }
  int cols() const override { return cols_; }
  const PackedTable& table() const { return *table_; }  // of rank 0

 private:
  const int rows_;
  const int cols_;
  const std::unique_ptr<PackedTable> table_;  // null: rank 0 has it
};

RankBackend::RankBackend(std::unique_ptr<Backend> inner, Collective* host,
                         std::unique_ptr<Collective> on_device)
    : ForwardedBackend(std::move(inner)),
      on_device_(OnDevice(inner_.get(), host, std::move(on_device))),
      collective_(on_device_ == nullptr ? host : on_device_.get()) {
  NACRE_CHECK(kInputShards % collective_->ranks() == 0,
              "shards of inputs are not dealt out evenly");
}

std::string RankBackend::numerics_id() const {
  return absl::StrCat(inner_->numerics_id(), "-shards", kInputShards);
}

std::string RankBackend::description() const {
  const std::string sums = collective_->description();
  return absl::StrCat("rank ", rank(), " of ", ranks(), ": ",
                      inner_->description(), sums.empty() ? "" : ", ", sums);
}

void RankBackend::QueueCopyToHost(const void* device, size_t bytes,
                                  void* host) {
  if (rank() == 0) inner_->QueueCopyToHost(device, bytes, host);
}

absl::Status RankBackend::AfterWait(const absl::Status& inner) {
  if (status_.ok()) status_ = collective_->Outcome();
  if (!inner.ok()) Fail(inner);
  return status_;
}

absl::Status RankBackend::Synchronize() {
  return AfterWait(inner_->Synchronize());
}

absl::Status RankBackend::WaitFor(int64_t mark) {
  return AfterWait(inner_->WaitFor(mark));
}

int64_t RankBackend::PackedBytes(absl::Span<const HostMatrix> parts) const {
  return inner_->PackedBytes(parts);
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> RankBackend::Pack(
    absl::Span<const HostMatrix> parts) {
  return PackFor(parts, {});
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> RankBackend::PackFor(
    absl::Span<const HostMatrix> parts, PackHints hints) {
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  hints.shares = ranks();
  NACRE_ASSIGN_OR_RETURN(packed.emplace_back(), inner_->PackFor(parts, hints));
  const int rows = packed.front()->rows();
  return std::make_unique<Matrix>(Matrix::Kind::kPlain, rows,
                                  std::move(packed));
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> RankBackend::PackInputs(
    absl::Span<const HostMatrix> shards) {
  NACRE_CHECK(static_cast<int>(shards.size()) == kInputShards / ranks(),
              "not this rank's shards of the inputs");
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  for (const HostMatrix& shard : shards) {
    NACRE_CHECK(shard.cols == shards[0].cols && shard.rows == shards[0].rows,
                "shards of inputs differ");
    NACRE_ASSIGN_OR_RETURN(packed.emplace_back(), inner_->Pack({shard}));
  }
  return std::make_unique<Matrix>(Matrix::Kind::kInputs, shards[0].rows,
                                  std::move(packed));
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> RankBackend::PackOutputs(
    const HostMatrix& shard) {
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  NACRE_ASSIGN_OR_RETURN(packed.emplace_back(),
                         inner_->PackFor({shard}, {ranks()}));
  return std::make_unique<Matrix>(Matrix::Kind::kOutputs, shard.rows * ranks(),
                                  std::move(packed));
}

absl::StatusOr<std::unique_ptr<PackedTable>> RankBackend::PackTable(
    const HostMatrix& table) {
  std::unique_ptr<PackedTable> packed;
  if (rank() == 0) {
    NACRE_ASSIGN_OR_RETURN(packed, inner_->PackTable(table));
  }
  return std::make_unique<Table>(table, std::move(packed));
}

void RankBackend::Fail(const absl::Status& status) {
  if (!status_.ok()) return;
  status_ = FailureOfRank(rank(), status);
  collective_->Abort(status_);
}

float* RankBackend::Reserve(size_t values, std::unique_ptr<Buffer>* buffer) {
  const size_t bytes = values * sizeof(float);
  if (*buffer == nullptr || (*buffer)->size_bytes() < bytes) {
    // Of a step that is recorded, kernels may still use it.
    if (*buffer != nullptr) {
      if (const absl::Status status = inner_->Synchronize(); !status.ok()) {
        Fail(status);
        return nullptr;
      }
    }
    buffer->reset();  // before there are two
    absl::StatusOr<std::unique_ptr<Buffer>> memory = Allocate(bytes);
    if (!memory.ok()) {
      Fail(memory.status());
      return nullptr;
    }
    *buffer = *std::move(memory);
  }
  return (*buffer)->f32();
}

// Sums that wait for their neighbour lie one after the other. A shard's product
// is added to the sum before it as often as its number has ones at its end.
const float* RankBackend::MultiplyInputs(const float* x, int rows,
                                         const Matrix& w) {
  const size_t parts = w.num_parts();
  const size_t height = static_cast<size_t>(rows);
  const int cols = w.part(0).cols();
  const size_t size = height * static_cast<size_t>(w.rows());
  float* const sums = Reserve(std::bit_width(parts) * size, &sums_);
  float* const inputs = Reserve(height * static_cast<size_t>(cols), &inputs_);
  if (sums == nullptr || inputs == nullptr) return nullptr;
  float* sum = sums;
  for (size_t part = 0; part < parts; ++part, sum += size) {
    const int first = static_cast<int>(part) * cols;
    const float* from = x + first;
    if (rows > 1 && parts > 1) {
      inner_->TakeColumns(x, rows, w.cols(), first, cols, inputs);
      from = inputs;
    }
    inner_->MatMul(from, rows, w.part(part), sum);
    for (size_t ones = part; (ones & 1) != 0; ones >>= 1, sum -= size) {
      inner_->AddInPlace(sum - size, sum, size);
    }
  }
  return sums;
}

void RankBackend::MatMul(const float* x, int rows, const PackedMatrix& w,
                         float* y) {
  if (rows == 0 || !status_.ok()) return;
  const auto& matrix = static_cast<const Matrix&>(w);
  const PackedMatrix& first = matrix.part(0);
  if (matrix.kind() == Matrix::Kind::kPlain) {
    inner_->MatMul(x, rows, first, y);
  } else if (matrix.kind() == Matrix::Kind::kInputs) {
    const float* const part = MultiplyInputs(x, rows, matrix);
    if (part == nullptr) return;
    const size_t count =
        static_cast<size_t>(rows) * static_cast<size_t>(matrix.rows());
    status_ = collective_->AllReduce(part, count, y);
  } else {
    const size_t count =
        static_cast<size_t>(rows) * static_cast<size_t>(first.rows());
    float* const part = Reserve(count, &outputs_);
    if (part == nullptr) return;
    inner_->MatMul(x, rows, first, part);
    status_ = collective_->Gather(part, rows, first.rows(), y);
  }
}

void RankBackend::NormMatMul(const float* x, int rows, const float* weight,
                             float epsilon, const PackedMatrix& w,
                             float* normed, float* y) {
  const auto& matrix = static_cast<const Matrix&>(w);
  if (matrix.kind() != Matrix::Kind::kPlain) {
    return Backend::NormMatMul(x, rows, weight, epsilon, w, normed, y);
  }
  if (!status_.ok()) return;
  inner_->NormMatMul(x, rows, weight, epsilon, matrix.part(0), normed, y);
}

void RankBackend::NormMatMulRopeStoreKv(const NormedRows& in,
                                        const PackedMatrix& w,
                                        const float* bias,
                                        const HeadAngles& angles,
                                        absl::Span<const RowContext> contexts,
                                        const KvLayer& layer, float* qkv) {
  const auto& matrix = static_cast<const Matrix&>(w);
  NACRE_CHECK(matrix.kind() == Matrix::Kind::kPlain,
              "queries, keys and values of several ranks");
  if (!status_.ok()) return;
  inner_->NormMatMulRopeStoreKv(in, matrix.part(0), bias, angles, contexts,
                                layer, qkv);
}

void RankBackend::Embed(const PackedTable& table, absl::Span<const int32_t> ids,
                        float* out) {
  if (!status_.ok()) return;
  if (rank() == 0) {
    inner_->Embed(static_cast<const Table&>(table).table(), ids, out);
  }
  status_ = collective_->Broadcast(
      out, ids.size() * static_cast<size_t>(table.cols()));
}

void RankBackend::EmbedDrawn(const PackedTable& table, const int32_t* ids,
                             int count, float* out) {
  if (!status_.ok()) return;
  if (rank() == 0) {
    inner_->EmbedDrawn(static_cast<const Table&>(table).table(), ids, count,
                       out);
  }
  status_ = collective_->Broadcast(
      out, static_cast<size_t>(count) * static_cast<size_t>(table.cols()));
}

}  // namespace nacre::kernels
