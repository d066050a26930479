#include "model/gumbel_race.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/gumbel_race.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include <algorithm>
#include <array>
#include <cstddef>

#include "common/check.h"
#include "common/deterministic_math.h"
#include "common/philox.h"
#include "hwy/highway.h"
#include "model/group_noise-inl.h"
#include "model/logit_row-inl.h"

#ifndef MODEL_GUMBEL_RACE_CC_
#define MODEL_GUMBEL_RACE_CC_
namespace nacre::model {

// What NextContenders looks for.
struct RaceState {
  uint64_t seed;
  int position;
  float lowest;
  float bar;
};

}  // namespace nacre::model
#endif  // MODEL_GUMBEL_RACE_CC_

HWY_BEFORE_NAMESPACE();
namespace nacre::model {
namespace HWY_NAMESPACE {

// lowest_bits[i] = numbers below it lose for certain in a group of this
// maximum: the inverse of GumbelUpperBound, with more than its rounding errors
// to spare.                                                  [FloatLanes()]
HWY_INLINE void LowestBits(VF32 maxima, float bar, uint32_t* lowest_bits) {
  const F32 df;
  const hn::RebindToSigned<F32> di;
  const hn::RebindToUnsigned<F32> du;
  // The noise that is missing: at most 23, for groups that can win.
  const VF32 best = hn::Set(df, bar);
  const VF32 missing = hn::Sub(best, maxima);
  // The difference and the sum that it stands for are rounded.
  const VF32 size = hn::Add(hn::Abs(best), hn::Abs(maxima));
  const VF32 least = hn::Sub(missing, hn::Mul(size, hn::Set(df, 0x1p-21f)));
  VF32 fixed_point = hn::Mul(hn::Sub(hn::Set(df, 109.5193f), least),
                             hn::Set(df, 1.2102200e7f));
  // From 2^30.99 on all numbers are left. Below 1/8 none would be.
  const VF32 all = hn::Set(df, 1325270000.0f);
  fixed_point = hn::Max(fixed_point, hn::Set(df, 1.04e9f));
  const auto is_all = hn::Not(hn::Lt(fixed_point, all));  // NaN too
  fixed_point = hn::IfThenElse(is_all, all, fixed_point);
  const VF32 y = hn::BitCast(df, hn::ConvertTo(di, fixed_point));
  const auto complement =
      hn::Add(hn::ConvertTo(di, hn::Mul(y, hn::Set(df, 1.0f + 0x1p-20f))),
              hn::Set(di, 2));
  // ~bits >> 1 is at most that.
  auto lowest = hn::Not(hn::BitCast(
      du, hn::Add(hn::Add(complement, complement), hn::Set(di, 1))));
  lowest = hn::IfThenZeroElse(hn::RebindMask(du, is_all), lowest);
  hn::StoreU(lowest, du, lowest_bits);
}

// The tokens of a group that may win, bit by bit.
HWY_INLINE uint64_t MayWin(const float* logits, float temperature,
                           const RaceState& state, const uint32_t* bits) {
  const F32 df;
  const hn::RebindToSigned<F32> di;
  const hn::RebindToUnsigned<F32> du;
  uint64_t tokens = 0;
  for (size_t i = 0; i < kGroupTokens; i += FloatLanes()) {
    const VF32 scaled =
        hn::Div(hn::LoadU(df, logits + i), hn::Set(df, temperature));
    // GumbelUpperBound.
    const auto complement = hn::ShiftRight<1>(hn::Not(hn::LoadU(du, bits + i)));
    const VF32 y = hn::Add(hn::ConvertTo(df, hn::BitCast(di, complement)),
                           hn::Set(df, 0.25f));
    const VF32 fixed_point = hn::ConvertTo(df, hn::BitCast(di, y));
    const VF32 bound =
        hn::Sub(hn::Set(df, 109.5183f),
                hn::Mul(hn::Set(df, 8.2629635e-8f), fixed_point));
    const auto reaches =
        hn::And(hn::Ge(hn::Add(scaled, bound), hn::Set(df, state.bar)),
                hn::Ge(scaled, hn::Set(df, state.lowest)));
    uint8_t mask[8] = {};
    hn::StoreMaskBits(df, reaches, mask);
    for (size_t byte = 0; 8 * byte < FloatLanes(); ++byte) {
      tokens |= uint64_t{mask[byte]} << (i + 8 * byte);
    }
  }
  return tokens;
}

bool NextContendersImpl(const LogitRow& row, const RaceState& state,
                        GroupRange groups, Contenders* contenders) {
  const F32 df;
  const int lanes = static_cast<int>(FloatLanes());
  HWY_ALIGN uint32_t lowest_bits[hn::MaxLanes(F32())];
  HWY_ALIGN float padded[kGroupTokens];
  const GroupNoise noise(state.seed, state.position);
  for (int first = groups.begin; first < groups.end; first += lanes) {
    const VF32 maxima = hn::LoadU(df, row.maxima + first);
    const auto may_win =
        hn::And(hn::Ge(maxima, hn::Set(df, state.lowest)),
                hn::Ge(hn::Add(maxima, hn::Set(df, kMaxGumbel)),
                       hn::Set(df, state.bar)));
    if (hn::AllFalse(df, may_win)) continue;
    LowestBits(maxima, state.bar, lowest_bits);
    const int end = std::min(lanes, groups.end - first);
    for (int i = 0; i < end; i += GroupNoise::kGroups) {
      uint32_t possible = 0;
      for (int j = 0; j < std::min(GroupNoise::kGroups, end - i); ++j) {
        // Of a row that is raced while it comes from memory.
        FetchAhead(row.logits + FirstOfGroup(first + i + j));
        const float maximum = row.maxima[first + i + j];
        possible |= maximum >= state.lowest && maximum + kMaxGumbel >= state.bar
                        ? 1u << j
                        : 0u;
      }
      if (possible == 0) continue;
      possible &= noise.WhichReach(first + i, lowest_bits + i);
      for (; possible != 0; possible &= possible - 1) {
        contenders->group = first + i + std::countr_zero(possible);
        noise.Draw(contenders->group, contenders->bits);
        const int id = contenders->group * kGroupTokens;
        contenders->tokens =
            MayWin(Padded(row.logits + id, row.count - id, padded),
                   row.temperature, state, contenders->bits);
        if (contenders->tokens != 0) return true;
      }
    }
  }
  return false;
}

}  // namespace HWY_NAMESPACE
}  // namespace nacre::model
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nacre::model {

HWY_EXPORT(NextContendersImpl);

void GumbelRace::Add(float scaled, int32_t id) {
  const PhiloxBlock noise = NoiseBlock(
      seed_, static_cast<uint32_t>(position_),
      static_cast<uint32_t>(id / kTokensPerNoiseBlock), NoisePurpose::kSample);
  Add(scaled, id, noise[static_cast<size_t>(id % kTokensPerNoiseBlock)]);
}

void GumbelRace::Add(float scaled, int32_t id, uint32_t bits) {
  top_.Add(id, scaled + GumbelFromBits(bits));
}

TopCandidates::TopCandidates(int places) : places_(places) {
  NACRE_CHECK(places >= 1 && places <= kMaxCandidates, "places of a race");
}

void TopCandidates::Add(int32_t id, float score) {
  if (!(score >= bar_) || score == -kInfinity) return;
  int place = 0;
  for (; place < count_; ++place) {
    const ScoredToken& other = candidates_[static_cast<size_t>(place)];
    if (other.token_id == id) return;
    if (score > other.score || (score == other.score && id < other.token_id))
      break;
  }
  if (place == places_) return;
  // The same token has the same score: it is not further down.
  const auto first = candidates_.begin();
  count_ = std::min(count_ + 1, places_);
  std::move_backward(first + place, first + count_ - 1, first + count_);
  candidates_[static_cast<size_t>(place)] = {id, score};
  if (count_ == places_)
    bar_ = candidates_[static_cast<size_t>(count_ - 1)].score;
}

bool GumbelRace::NextContenders(const LogitRow& row, GroupRange groups,
                                float lowest, Contenders* contenders) const {
  return HWY_DYNAMIC_DISPATCH(NextContendersImpl)(
      row, {seed_, position_, lowest, bar()}, groups, contenders);
}

}  // namespace nacre::model
#endif  // HWY_ONCE
