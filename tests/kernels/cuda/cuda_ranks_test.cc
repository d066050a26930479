// Products of ranks on devices: the same bits for any number of ranks and rows,
// shares of outputs with the bits of the whole, and the end of all ranks when a
// device fails. Ranks meet in memory of the host, by NCCL, and as peers. On the
// emulated devices each rank has one. Of GPUs those that do not meet on the
// host have one each, as far as there are; the others share one.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "kernels/device_collectives.h"
#include "kernels/rank_backend.h"
#include "kernels/shared_memory_collective.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/rank_threads.h"
#include "tests/kernels/rank_transports.h"

namespace nacre::kernels {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Values = std::vector<float>;

// Null where there is no GPU.
std::unique_ptr<Backend> OnDevice(const std::string& weights, int device) {
  BackendOptions options;
  options.kind = "cuda";
  options.weights = weights;
  options.kv_type = "f32";
  options.device = device;
  auto backend = CreateBackend(options);
  if (backend.status().code() == absl::StatusCode::kFailedPrecondition) {
    return nullptr;
  }
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

class CudaDevicesTest : public ::testing::Test {
 protected:
  const DevicesOfRanks devices_;
};

// By what ranks meet by.
class CudaRanksTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (most() == 0 || OnDevice("auto", 0) == nullptr) {
      GTEST_SKIP() << "too few CUDA devices";
    }
  }
  int most() const { return devices_.MostRanks(GetParam()); }
  int least() const { return devices_.LeastRanks(GetParam()); }

  const DevicesOfRanks devices_;
};

INSTANTIATE_TEST_SUITE_P(By, CudaRanksTest,
                         ::testing::ValuesIn(DevicesOfRanks::Transports()),
                         [](const auto& test) { return test.param; });

#define SKIP_WITHOUT_GPU() \
  if (OnDevice("auto", 0) == nullptr) GTEST_SKIP() << "no CUDA device"

struct Ranks {
  Ranks(int count, const std::string& weights, const std::string& transport)
      : collectives(MakeSharedMemoryCollectives(count)) {
    BackendOptions options;
    options.rank_transport = transport;
    options.devices = DevicesOfRanks::Of(count, transport);
    std::vector<std::unique_ptr<Backend>> inner;
    for (const int device : options.devices) {
      inner.push_back(OnDevice(weights, device));
    }
    auto meet = MakeDeviceCollectives(options, collectives, inner);
    EXPECT_TRUE(meet.ok()) << meet.status();
    EXPECT_EQ(meet->by_nccl, transport == "nccl");
    EXPECT_EQ(meet->why_host.empty(), transport != "host");
    for (size_t rank = 0; rank < inner.size(); ++rank) {
      backends.push_back(std::make_unique<RankBackend>(
          std::move(inner[rank]), collectives[rank].get(),
          std::move(meet->of_ranks[rank])));
    }
  }
  int count() const { return static_cast<int>(backends.size()); }

  std::vector<std::unique_ptr<Collective>> collectives;
  std::vector<std::unique_ptr<RankBackend>> backends;
};

size_t Area(int rows, int cols) {
  return static_cast<size_t>(rows) * static_cast<size_t>(cols);
}

std::unique_ptr<Buffer> ToDevice(Backend* backend, const Values& values) {
  auto buffer = *backend->Allocate(values.size() * sizeof(float));
  backend->CopyFromHost(values.data(), values.size() * sizeof(float),
                        buffer->data());
  return buffer;
}

// x W^T, as the host sees it.
Values Product(Backend* backend, const Values& x, int rows,
               const PackedMatrix& w) {
  const auto in = ToDevice(backend, x);
  const auto out = ToDevice(backend, Values(Area(rows, w.rows())));
  backend->MatMul(in->f32(), rows, w, out->f32());
  Values y(Area(rows, w.rows()));
  backend->CopyToHost(out->data(), y.size() * sizeof(float), y.data());
  return y;
}

// Rows [first_row, + rows) and columns [first_col, + cols) of a matrix.
Values Block(const Values& matrix, int all_cols, int first_row, int rows,
             int first_col, int cols) {
  Values block;
  for (int row = first_row; row < first_row + rows; ++row) {
    const auto from = matrix.begin() + row * all_cols + first_col;
    block.insert(block.end(), from, from + cols);
  }
  return block;
}

// Columns of a matrix that lie apart, as a checkpoint's do.
class Columns : public RowSource {
 public:
  Columns(const Values& matrix, int all_cols, int first, int cols)
      : matrix_(matrix), all_cols_(all_cols), first_(first), cols_(cols) {}

  const void* Read(int first, int count,
                   std::vector<char>* scratch) const override {
    const Values rows = Block(matrix_, all_cols_, first, count, first_, cols_);
    const auto* const bytes = reinterpret_cast<const char*>(rows.data());
    scratch->assign(bytes, bytes + rows.size() * sizeof(float));
    return scratch->data();
  }
  void GiveBack(int, int) const override {}

 private:
  const Values& matrix_;
  const int all_cols_;
  const int first_;
  const int cols_;
};

// y of every rank, of a product whose inputs are split.
std::vector<Values> ShardedProduct(Ranks& ranks, const Values& x, int rows,
                                   const Values& w, int outputs, int cols) {
  std::vector<Values> products(ranks.backends.size());
  OnEveryRank(ranks.count(), [&](int rank) {
    RankBackend& backend = *ranks.backends[static_cast<size_t>(rank)];
    backend.BindComputeThread();
    const int each = cols / kInputShards;
    const int shards = kInputShards / ranks.count();
    std::vector<std::unique_ptr<Columns>> sources;
    std::vector<HostMatrix> matrices;
    for (int i = 0; i < shards; ++i) {
      sources.push_back(
          std::make_unique<Columns>(w, cols, (rank * shards + i) * each, each));
      matrices.push_back(
          {DType::kF32, nullptr, outputs, each, sources.back().get()});
    }
    const auto packed = backend.PackInputs(matrices);
    ASSERT_TRUE(packed.ok()) << packed.status();
    const Values own =
        Block(x, cols, 0, rows, rank * shards * each, shards * each);
    products[static_cast<size_t>(rank)] =
        Product(&backend, own, rows, **packed);
    EXPECT_TRUE(backend.Synchronize().ok());
  });
  return products;
}

struct Size {
  int rows, outputs, each;  // inputs of a shard
};

TEST_P(CudaRanksTest, SplitInputsHaveTheSameBitsForAnyNumberOfRanksAndRows) {
  constexpr Size kSizes[] = {{1, 3, 1}, {5, 17, 13}, {33, 40, 64}};
  for (const char* weights : {"f32", "bf16", "int8", "fp8", "int4"}) {
    // Peers take the emulated devices longest, whatever the weights.
    if (GetParam() == "peer" && weights != std::string("f32")) continue;
    for (const Size& size : kSizes) {
      const int cols = size.each * kInputShards;
      const Values x = RandomFloats(Area(size.rows, cols), 3);
      const Values w = RandomFloats(Area(size.outputs, cols), 4);
      Ranks one(1, weights, least() == 1 ? GetParam() : "host");
      const Values expected =
          ShardedProduct(one, x, size.rows, w, size.outputs, cols)[0];
      for (const int count : {2, 4, 8}) {
        if (count > most()) continue;
        Ranks ranks(count, weights, GetParam());
        for (const Values& y :
             ShardedProduct(ranks, x, size.rows, w, size.outputs, cols)) {
          EXPECT_EQ(y, expected) << weights << ", " << count << " ranks";
        }
      }
      // The last row alone.
      const Values row = Block(x, cols, size.rows - 1, 1, 0, cols);
      EXPECT_EQ(
          ShardedProduct(one, row, 1, w, size.outputs, cols)[0],
          Block(expected, size.outputs, size.rows - 1, 1, 0, size.outputs))
          << weights;
    }
  }
}

// Each shard is the device's own product of its inputs; they are added as the
// definition says.
TEST_P(CudaRanksTest, SumsArePairsOfShards) {
  constexpr int kRows = 3, kOutputs = 20, kEach = 9;
  constexpr int kCols = kEach * kInputShards;
  const Values x = RandomFloats(kRows * kCols, 5);
  const Values w = RandomFloats(kOutputs * kCols, 6);
  for (const char* weights : {"f32", "bf16"}) {
    const auto backend = OnDevice(weights, 0);
    std::vector<Values> sums;
    for (int shard = 0; shard < kInputShards; ++shard) {
      const Values own = Block(w, kCols, 0, kOutputs, shard * kEach, kEach);
      const auto packed =
          backend->Pack({{DType::kF32, own.data(), kOutputs, kEach}});
      ASSERT_TRUE(packed.ok()) << packed.status();
      sums.push_back(Product(backend.get(),
                             Block(x, kCols, 0, kRows, shard * kEach, kEach),
                             kRows, **packed));
    }
    for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
      for (size_t i = 0; i < sums.size() / 2; ++i) {
        Values pair = sums[2 * i];
        for (size_t j = 0; j < pair.size(); ++j) pair[j] += sums[2 * i + 1][j];
        sums[i] = pair;
      }
    }
    for (const int count : {1, 2, 8}) {
      if (count < least() || count > most()) continue;
      Ranks ranks(count, weights, GetParam());
      EXPECT_EQ(ShardedProduct(ranks, x, kRows, w, kOutputs, kCols).back(),
                sums[0])
          << weights << ", " << count << " ranks";
    }
  }
}

// With so many inputs the order of sums follows from the outputs: a matrix of
// few is cut into slices.
TEST_F(CudaDevicesTest, SharesOfOutputsHaveTheBitsOfTheWhole) {
  SKIP_WITHOUT_GPU();
  constexpr int kCols = 2048, kShare = 64, kShares = 64;
  const Values x = RandomFloats(kCols, 7);
  const Values w = RandomFloats(kShare * kCols, 8);
  const auto backend = OnDevice("bf16", 0);
  const auto product = [&](int first, int rows, int shares) {
    const auto packed = backend->PackFor(
        {{DType::kF32, w.data() + Area(first, kCols), rows, kCols}}, {shares});
    EXPECT_TRUE(packed.ok()) << packed.status();
    return Product(backend.get(), x, 1, **packed);
  };
  const Values share = product(0, kShare, kShares);
  for (const int first : {0, kShare / 2}) {
    EXPECT_EQ(product(first, kShare / 2, 2 * kShares),
              Block(share, kShare, 0, 1, first, kShare / 2));
  }
  EXPECT_NE(product(0, kShare, 1), share);  // in slices of its own
}

TEST_F(CudaDevicesTest, AShareHasTheBitsOfAMatrixThatIsNotSplit) {
  SKIP_WITHOUT_GPU();
  constexpr int kCols = 2048, kOutputs = 4096, kShare = 64;
  const Values x = RandomFloats(kCols, 21);
  const Values w = RandomFloats(kOutputs * kCols, 22);
  const auto backend = OnDevice("bf16", 0);
  const Values whole =
      Product(backend.get(), x, 1,
              **backend->Pack({{DType::kF32, w.data(), kOutputs, kCols}}));
  for (const int first : {0, kOutputs - kShare}) {
    const auto share = backend->PackFor(
        {{DType::kF32, w.data() + Area(first, kCols), kShare, kCols}},
        {kOutputs / kShare});
    ASSERT_TRUE(share.ok()) << share.status();
    EXPECT_EQ(Product(backend.get(), x, 1, **share),
              Block(whole, kOutputs, 0, 1, first, kShare));
  }
}

TEST_P(CudaRanksTest, RanksPackSharesOfOutputs) {
  constexpr int kCols = 2048, kShare = 512;
  const int count = most();
  const Values x = RandomFloats(kCols, 13);
  const Values w = RandomFloats(kShare * kCols, 14);
  const HostMatrix share = {DType::kF32, w.data(), kShare, kCols};
  const auto plain = OnDevice("bf16", 0);
  const Values expected =
      Product(plain.get(), x, 1, **plain->PackFor({share}, {count}));
  EXPECT_NE(Product(plain.get(), x, 1, **plain->Pack({share})), expected);
  Ranks ranks(count, "bf16", GetParam());
  OnEveryRank(count, [&](int rank) {
    RankBackend& backend = *ranks.backends[static_cast<size_t>(rank)];
    backend.BindComputeThread();
    if (rank == 0) {
      EXPECT_EQ(Product(&backend, x, 1, **backend.Pack({share})), expected);
    }
    const Values all = Product(&backend, x, 1, **backend.PackOutputs(share));
    if (rank == 0) {
      EXPECT_EQ(Block(all, kShare * count, 0, 1, kShare, kShare), expected);
    }
  });
}

TEST_P(CudaRanksTest, SplitOutputsAreThoseOfTheWholeMatrixOnRankZero) {
  constexpr int kRows = 3, kOutputs = 40, kCols = 21;
  const Values x = RandomFloats(kRows * kCols, 9);
  const Values w = RandomFloats(kOutputs * kCols, 10);
  const auto plain = OnDevice("bf16", 0);
  const auto whole = plain->Pack({{DType::kF32, w.data(), kOutputs, kCols}});
  const Values expected = Product(plain.get(), x, kRows, **whole);
  for (const int count : {1, 2, 4, 8}) {
    if (count < least() || count > most()) continue;
    Ranks ranks(count, "bf16", GetParam());
    OnEveryRank(count, [&](int rank) {
      RankBackend& backend = *ranks.backends[static_cast<size_t>(rank)];
      backend.BindComputeThread();
      const int each = kOutputs / count;
      const Values own = Block(w, kCols, rank * each, each, 0, kCols);
      const auto packed =
          backend.PackOutputs({DType::kF32, own.data(), each, kCols});
      ASSERT_TRUE(packed.ok()) << packed.status();
      const Values y = Product(&backend, x, kRows, **packed);
      if (rank == 0) {
        EXPECT_EQ(y, expected) << count << " ranks";
      }
    });
  }
}

TEST_P(CudaRanksTest, RankZeroSendsTheRowsOfATable) {
  constexpr int kVocab = 11, kCols = 6;
  const Values table = RandomFloats(kVocab * kCols, 11);
  const int count = std::min(most(), 4);
  Ranks ranks(count, "auto", GetParam());
  const std::vector<int32_t> ids = {10, 0, 3};
  OnEveryRank(count, [&](int rank) {
    RankBackend& backend = *ranks.backends[static_cast<size_t>(rank)];
    backend.BindComputeThread();
    const auto packed = backend.PackTable(
        {DType::kF32, rank == 0 ? table.data() : nullptr, kVocab, kCols});
    ASSERT_TRUE(packed.ok()) << packed.status();
    const auto out = ToDevice(&backend, Values(ids.size() * kCols));
    backend.Embed(**packed, ids, out->f32());
    Values rows(ids.size() * kCols);
    backend.CopyToHost(out->data(), rows.size() * sizeof(float), rows.data());
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(Block(rows, kCols, static_cast<int>(i), 1, 0, kCols),
                Block(table, kCols, ids[i], 1, 0, kCols));
    }
  });
}

#ifdef NACRE_EMULATED_CUDA
TEST_P(CudaRanksTest, ADeviceThatFailsEndsAllRanks) {
  constexpr int kCols = 8;
  const Values w = RandomFloats(3 * kCols, 12);
  Ranks ranks(4, "f32", GetParam());
  std::vector<absl::Status> statuses(4);
  cuda::emulation::settings.fault = cudaErrorIllegalAddress;
  cuda::emulation::settings.fault_device = 2;
  OnEveryRank(4, [&](int rank) {
    RankBackend& backend = *ranks.backends[static_cast<size_t>(rank)];
    backend.BindComputeThread();
    const Values own = Block(w, kCols, 0, 3, 2 * rank, 1);
    const HostMatrix shard = {DType::kF32, own.data(), 3, 1};
    const auto packed = backend.PackInputs({shard, shard});
    ASSERT_TRUE(packed.ok()) << packed.status();
    const auto x = ToDevice(&backend, {1, 2});
    const auto y = ToDevice(&backend, Values(3));
    for (int i = 0; i < 2; ++i) {
      backend.MatMul(x->f32(), 1, **packed, y->f32());
      statuses[static_cast<size_t>(rank)] = backend.Synchronize();
    }
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith("rank 2: "), HasSubstr("emulated error")));
  }
}

// What the emulated devices promise to tests of several.
TEST_F(CudaDevicesTest, ADeviceHasMemoryAndStreamsOfItsOwn) {
  const auto first = OnDevice("f32", 0);
  const auto second = OnDevice("f32", 1);
  const auto x = ToDevice(first.get(), {1, 2, 3});
  const auto y = ToDevice(second.get(), {4, 5, 6});
  second->BindComputeThread();
  second->Scale(y->f32(), 3, 2);
  EXPECT_EXIT(second->Scale(x->f32(), 3, 2), ::testing::ExitedWithCode(1),
              "a pointer of another device");
  // Not on the thread that queues there.
  first->Scale(x->f32(), 3, 2);
  EXPECT_EQ(first->Synchronize().code(), absl::StatusCode::kInternal);
  Values values(3);
  second->CopyToHost(y->data(), 3 * sizeof(float), values.data());
  EXPECT_EQ(values, Values({8, 10, 12}));
}
#endif

}  // namespace
}  // namespace nacre::kernels
