#include "model/top_values.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/top_values.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "common/check.h"
#include "hwy/highway.h"
#include "model/logit_row-inl.h"

#ifndef MODEL_TOP_VALUES_CC_
#define MODEL_TOP_VALUES_CC_
namespace nacre::model {

// What lies at or above a pivot, and what below.
struct Parts {
  int num_upper = 0;
  int num_lower = 0;
  int64_t upper_mass = 0;
};

}  // namespace nacre::model
#endif  // MODEL_TOP_VALUES_CC_

HWY_BEFORE_NAMESPACE();
namespace nacre::model {
namespace HWY_NAMESPACE {

// Writes what is at least `pivot` of `from` to its front, the rest to `lower`.
Parts PartitionImpl(ValueList from, int size, float pivot, ValueList lower) {
  const F32 df;
  const I32 di;
  const int lanes = static_cast<int>(FloatLanes());
  const VF32 limit = hn::Set(df, pivot);
  Parts parts;
  MassSum upper_mass;
  int i = 0;
  for (; i + lanes <= size; i += lanes) {
    const VF32 v = hn::LoadU(df, from.values + i);
    const VI32 mass = hn::LoadU(di, from.masses + i);
    const auto is_upper = hn::Ge(v, limit);
    const auto is_lower = hn::Not(is_upper);
    upper_mass.Add(hn::IfThenElseZero(hn::RebindMask(di, is_upper), mass),
                   hn::Zero(di));
    hn::StoreU(hn::Compress(v, is_lower), df, lower.values + parts.num_lower);
    hn::StoreU(hn::Compress(mass, hn::RebindMask(di, is_lower)), di,
               lower.masses + parts.num_lower);
    // Past what was written, but not past what was read.
    hn::StoreU(hn::Compress(v, is_upper), df, from.values + parts.num_upper);
    hn::StoreU(hn::Compress(mass, hn::RebindMask(di, is_upper)), di,
               from.masses + parts.num_upper);
    const int upper = static_cast<int>(hn::CountTrue(df, is_upper));
    parts.num_upper += upper;
    parts.num_lower += lanes - upper;
  }
  parts.upper_mass = upper_mass.Total();
  for (; i < size; ++i) {
    const bool is_upper = from.values[i] >= pivot;
    ValueList& to = is_upper ? from : lower;
    int& count = is_upper ? parts.num_upper : parts.num_lower;
    if (is_upper) parts.upper_mass += from.masses[i];
    to.values[count] = from.values[i];
    to.masses[count++] = from.masses[i];
  }
  return parts;
}

void RangeImpl(const float* values, int size, float* smallest, float* largest) {
  const F32 df;
  const int lanes = static_cast<int>(FloatLanes());
  VF32 low = hn::Set(df, kInfinity);
  VF32 high = hn::Set(df, -kInfinity);
  int i = 0;
  for (; i + lanes <= size; i += lanes) {
    const VF32 v = hn::LoadU(df, values + i);
    low = hn::Min(low, v);
    high = hn::Max(high, v);
  }
  *smallest = hn::GetLane(hn::MinOfLanes(df, low));
  *largest = hn::GetLane(hn::MaxOfLanes(df, high));
  for (; i < size; ++i) {
    *smallest = std::min(*smallest, values[i]);
    *largest = std::max(*largest, values[i]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace nacre::model
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nacre::model {
namespace {

HWY_EXPORT(PartitionImpl);
HWY_EXPORT(RangeImpl);

// So few are sorted.
constexpr int kSortedSize = 64;

bool Reaches(int64_t mass, double wanted) {
  return static_cast<double>(mass) >= wanted;
}

// `above`: the mass of what is larger than all of the list.
TopCut CutSorted(ValueList list, int size, int64_t above, double wanted) {
  std::array<std::pair<float, int32_t>, kSortedSize> sorted;
  for (int i = 0; i < size; ++i) sorted[i] = {list.values[i], list.masses[i]};
  std::sort(sorted.begin(), sorted.begin() + size,
            [](const auto& a, const auto& b) { return a.first > b.first; });
  TopCut cut;
  for (int i = 0; i < size; ++i) {
    if (cut.num_equal == 0 || sorted[i].first != cut.value) {
      cut.value = sorted[i].first;
      cut.num_equal = 0;
    }
    ++cut.num_equal;
    above += sorted[i].second;
    if (Reaches(above, wanted)) break;
  }
  cut.mass = above;
  return cut;
}

// The float halfway between two in the order of all floats: its distance to
// both halves each time, whatever their exponents.
float Middle(float low, float high) {
  const auto key = [](float value) {
    const int32_t bits = std::bit_cast<int32_t>(value);
    return int64_t{bits >= 0 ? bits : INT32_MIN - bits};
  };
  const int64_t middle = (key(low) + key(high) + 1) >> 1;
  const int32_t bits = static_cast<int32_t>(middle);
  return std::bit_cast<float>(bits >= 0 ? bits : INT32_MIN - bits);
}

}  // namespace

TopCut CutAtMass(ValueList from, ValueList spare, int size, double wanted) {
  int64_t above = 0;  // the mass of what is larger than all of `from`
  for (bool by_distance = true; size > kSortedSize;
       by_distance = !by_distance) {
    float low;
    float high;
    HWY_DYNAMIC_DISPATCH(RangeImpl)(from.values, size, &low, &high);
    if (low == high) {
      // All are equal: as many as are wanted.
      const int64_t each = from.masses[0];
      NACRE_CHECK(each > 0, "no mass where the list is cut");
      int64_t count = std::max<int64_t>(
          1, static_cast<int64_t>((wanted - static_cast<double>(above)) /
                                  static_cast<double>(each)) -
                 1);
      while (count < size && !Reaches(above + count * each, wanted)) ++count;
      return {high, static_cast<int>(count), above + count * each};
    }
    // Mostly the values lie evenly. Where they do not, halves of the order of
    // all floats end after 32 turns.
    float pivot = by_distance ? low + (high - low) * 0.5f : Middle(low, high);
    if (!(pivot > low && pivot <= high)) pivot = high;
    const Parts parts =
        HWY_DYNAMIC_DISPATCH(PartitionImpl)(from, size, pivot, spare);
    if (Reaches(above + parts.upper_mass, wanted)) {
      size = parts.num_upper;
    } else {
      above += parts.upper_mass;
      size = parts.num_lower;
      std::swap(from, spare);
    }
  }
  NACRE_CHECK(size > 0, "no value reaches the mass that is wanted");
  return CutSorted(from, size, above, wanted);
}

}  // namespace nacre::model
#endif  // HWY_ONCE
