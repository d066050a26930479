// The backend of one rank of a model whose weights are split among ranks
// (tensor parallel). It computes on a backend that it owns, and meets the other
// ranks where a product needs them:
//
//   PackInputs    a product whose inputs are split, as of attention's output
//                 and "down": each rank multiplies its inputs, an all-reduce
//                 adds up
//   PackOutputs   a product whose outputs are split and wanted together, as of
//                 the vocabulary head: rank 0 gathers them
//   PackTable     a table that rank 0 has: it sends the rows
//
// What Pack packs is this rank's own. So all ranks run the same model code over
// their shares, and neither it nor the inner backend knows of ranks.
//
// Sums of split inputs have the same bits for 1, 2, 4 and 8 ranks. They are cut
// into kInputShards fixed shards, each a product of its own. Those are added in
// pairs of neighbours, as Collective::AllReduce goes on among ranks.
//
// Devices meet by a Collective of their own: NCCL's (nccl_collective.h), or one
// that brings what they say to each other to the host and back
// (staged_collective.h).
//
// What is brought to the host is rank 0's: there the others copy nothing. After
// a failure of any rank Synchronize says which; nothing is computed after it.
//
// Thread-compatible: one thread, the rank's, but for Abort.

#ifndef KERNELS_RANK_BACKEND_H_
#define KERNELS_RANK_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/collective.h"
#include "kernels/forwarded_backend.h"

namespace nacre::kernels {

inline constexpr int kInputShards = 8;

class RankBackend : public ForwardedBackend {
 public:
  // `host`, this rank's and of threads of the host, outlives it. `on_device` is
  // of a device and may use `inner` and `host`; null: a StagedCollective.
  RankBackend(std::unique_ptr<Backend> inner, Collective* host,
              std::unique_ptr<Collective> on_device = nullptr);

  int rank() const { return collective_->rank(); }
  int ranks() const { return collective_->ranks(); }

  // W [rows, inputs of this rank], as this rank's kInputShards / ranks() shards
  // of consecutive inputs. MatMul is whole on every rank. Errors of Pack.
  absl::StatusOr<std::unique_ptr<PackedMatrix>> PackInputs(
      absl::Span<const HostMatrix> shards);
  // W [outputs of this rank, cols]; a product has those of all ranks, and lies
  // in y of rank 0 alone. Errors of Pack.
  absl::StatusOr<std::unique_ptr<PackedMatrix>> PackOutputs(
      const HostMatrix& shard);

  // Ends all ranks with `reason`, also what waits for a device. Any thread.
  void Abort(const absl::Status& reason) { collective_->Abort(reason); }

  std::string numerics_id() const override;
  std::string description() const override;
  bool copies_to_host() const override { return rank() == 0; }
  void QueueCopyToHost(const void* device, size_t bytes, void* host) override;
  absl::Status Synchronize() override;
  absl::Status WaitFor(int64_t mark) override;
  // Rank 0's, which has all logits.
  TokenDrawer* token_drawer() override {
    return rank() == 0 ? inner_->token_drawer() : nullptr;
  }
  int64_t PackedBytes(absl::Span<const HostMatrix> parts) const override;
  absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(
      absl::Span<const HostMatrix> parts) override;
  absl::StatusOr<std::unique_ptr<PackedMatrix>> PackFor(
      absl::Span<const HostMatrix> parts, PackHints hints) override;
  absl::StatusOr<std::unique_ptr<PackedTable>> PackTable(
      const HostMatrix& table) override;
  void MatMul(const float* x, int rows, const PackedMatrix& w,
              float* y) override;
  void NormMatMul(const float* x, int rows, const float* weight, float epsilon,
                  const PackedMatrix& w, float* normed, float* y) override;
  void NormMatMulRopeStoreKv(const NormedRows& in, const PackedMatrix& w,
                             const float* bias, const HeadAngles& angles,
                             absl::Span<const RowContext> contexts,
                             const KvLayer& layer, float* qkv) override;
  void Embed(const PackedTable& table, absl::Span<const int32_t> ids,
             float* out) override;
  void EmbedDrawn(const PackedTable& table, const int32_t* ids, int count,
                  float* out) override;

 private:
  class Matrix;
  class Table;

  // x times this rank's inputs, in scratch [rows, w.rows]; null: no room.
  const float* MultiplyInputs(const float* x, int rows, const Matrix& w);
  // Memory for so many values, whose old ones are lost; null: no room, and the
  // model has failed.
  float* Reserve(size_t values, std::unique_ptr<Buffer>* buffer);
  // Ends all ranks.
  void Fail(const absl::Status& status);
  // After a wait for the inner backend, which said `inner`.
  absl::Status AfterWait(const absl::Status& inner);

  const std::unique_ptr<Collective> on_device_;  // null: of the host
  Collective* const collective_;
  absl::Status status_;              // of the first failure
  std::unique_ptr<Buffer> inputs_;   // of one shard [rows, its cols]
  std::unique_ptr<Buffer> sums_;     // that are not added up yet
  std::unique_ptr<Buffer> outputs_;  // of this rank [rows, its outputs]
};

}  // namespace nacre::kernels

#endif  // KERNELS_RANK_BACKEND_H_
