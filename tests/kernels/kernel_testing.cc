#include "tests/kernels/kernel_testing.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/cpu/targets.h"
#include "kernels/kv_address.h"
// Highway's headers read the definition above.
#include "hwy/highway.h"
#include "hwy/targets.h"

namespace nacre::kernels {
namespace {

// Nearest half of a value in the normal range, by search: slow and plain.
uint16_t NearestF16(float value) {
  uint16_t best = 0;
  for (uint32_t half = 0; half < 0x7C00u; ++half) {
    const uint16_t candidate = static_cast<uint16_t>(half);
    if (std::fabs(FromF16(candidate) - std::fabs(value)) <
        std::fabs(FromF16(best) - std::fabs(value))) {
      best = candidate;
    }
  }
  return static_cast<uint16_t>(best | (std::signbit(value) ? 0x8000u : 0u));
}

}  // namespace

std::vector<float> RandomFloats(size_t count, uint32_t seed, float magnitude) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = (static_cast<float>(generator()) * 0x1p-31f - 1.0f) * magnitude;
  }
  return values;
}

std::vector<float> SumOfPairs(const std::vector<float>& parts, int num_parts) {
  if (num_parts == 1) return parts;
  const auto half = parts.begin() + static_cast<ptrdiff_t>(parts.size() / 2);
  std::vector<float> sum = SumOfPairs({parts.begin(), half}, num_parts / 2);
  const auto second = SumOfPairs({half, parts.end()}, num_parts / 2);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += second[i];
  return sum;
}

double SumTolerance(int terms) { return (terms + 8) * 0x1p-24; }

std::unique_ptr<Backend> MakeBackend(const std::string& kind,
                                     const std::string& weights,
                                     std::vector<int> cpus,
                                     const std::string& kv_type) {
  BackendOptions options;
  options.kind = kind;
  options.weights = weights;
  options.kv_type = kv_type;
  options.cpus = std::move(cpus);
  auto backend = CreateBackend(options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

std::vector<int> AllowedCores(size_t limit) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  EXPECT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE && cores.size() < limit; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  return cores;
}

UnalignedMatrix::UnalignedMatrix(const std::vector<float>& values, int rows,
                                 int cols, DType dtype)
    : dtype_(dtype),
      rows_(rows),
      cols_(cols),
      bytes_(1 + values.size() * SizeOf(dtype)) {
  char* out = bytes_.data() + 1;
  for (const float value : values) {
    const uint16_t half = dtype == DType::kBF16  ? ToBF16(value)
                          : dtype == DType::kF16 ? NearestF16(value)
                                                 : uint16_t{0};
    if (dtype == DType::kF32) {
      std::memcpy(out, &value, sizeof(value));
    } else {
      std::memcpy(out, &half, sizeof(half));
    }
    out += SizeOf(dtype);
  }
}

HostMatrix UnalignedMatrix::host() const {
  return {dtype_, bytes_.data() + 1, rows_, cols_};
}

float UnalignedMatrix::value(size_t i) const {
  const char* from = bytes_.data() + 1 + i * SizeOf(dtype_);
  if (dtype_ == DType::kF32) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  uint16_t half;
  std::memcpy(&half, from, sizeof(half));
  return dtype_ == DType::kBF16 ? FromBF16(half) : FromF16(half);
}

PagedCache::PagedCache(const Shape& shape, uint32_t seed) {
  const int blocks_each =
      (shape.positions + shape.block_size - 1) / shape.block_size;
  layer_.num_blocks = blocks_each * shape.sessions;
  layer_.num_kv_heads = shape.num_kv_heads;
  layer_.block_size = shape.block_size;
  layer_.head_dim = shape.head_dim;
  layer_.type = shape.type;
  const size_t elements = size_t{2} * layer_.num_blocks * shape.num_kv_heads *
                          shape.block_size * shape.head_dim;
  const std::vector<float> values = RandomFloats(elements, seed);
  if (shape.type == DType::kInt8) {
    FillWithIntegers(values);
  } else if (shape.type == DType::kBF16) {
    for (size_t i = 0; i < elements; i += 2) {
      words_.push_back(ToBF16(values[i]) | uint32_t{ToBF16(values[i + 1])}
                                               << 16);
    }
  } else {
    for (const float value : values) {
      words_.push_back(std::bit_cast<uint32_t>(value));
    }
  }
  layer_.blocks = words_.data();
  std::vector<int32_t> blocks(layer_.num_blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(seed + 2));
  for (int session = 0; session < shape.sessions; ++session) {
    const auto begin = blocks.begin() + session * blocks_each;
    tables_.emplace_back(begin, begin + blocks_each);
  }
}

// Numbers in [-1, 1].
void PagedCache::FillWithIntegers(const std::vector<float>& values) {
  const size_t half = KvHalfElements(layer_);
  words_.resize(half * 2 * layer_.num_blocks * layer_.num_kv_heads /
                sizeof(uint32_t));
  auto* const integers = reinterpret_cast<int8_t*>(words_.data());
  layer_.blocks = integers;
  for (size_t i = 0; i < words_.size() * sizeof(uint32_t); ++i) {
    integers[i] = static_cast<int8_t>(values[i % values.size()] * 127);
  }
  for (KvSlot slot = 0; slot < layer_.num_blocks * layer_.block_size; ++slot) {
    for (int head = 0; head < layer_.num_kv_heads; ++head) {
      const size_t index = KeyScaleIndex(layer_, slot, head);
      for (const size_t at : {index, index + half}) {
        const float scale =
            std::fabs(values[(at + 1) % values.size()]) / 127.0f;
        std::memcpy(integers + at, &scale, sizeof(scale));
      }
    }
  }
}

RowContext PagedCache::Row(int session, int position) const {
  return {tables_[session].data(), position};
}

ForcedTarget::ForcedTarget(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

ForcedTarget::~ForcedTarget() {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

std::vector<int64_t> SupportedSimdTargets() {
  std::vector<int64_t> targets;
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0;
       left &= left - 1) {
    targets.push_back(left & -left);
  }
  return targets;
}

std::string SimdTargetName(const ::testing::TestParamInfo<int64_t>& info) {
  return hwy::TargetName(info.param);
}

}  // namespace nacre::kernels
