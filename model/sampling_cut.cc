#include "model/sampling_cut.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "model/logit_row.h"
#include "model/probability_mass.h"
#include "model/top_values.h"

namespace nacre::model {
namespace {

// Top-p looks at the likeliest tokens first: differences to the best value in
// which it looks further. The last holds everything that has a mass.
constexpr float kBands[] = {-4.0f, -8.0f, -12.0f, -16.0f,
                            kNegligibleDifference - 1.0f};

// Beyond it a total that is only estimated does not tell where the cut is.
constexpr int kFewTokens = 4096;

class CutFinder {
 public:
  CutFinder(const SamplingParams& params, const LogitRow& row, float best,
            SamplingScratch* scratch)
      : params_(params),
        row_(row),
        best_(best),
        list_{scratch->values.data(), scratch->masses.data()},
        spare_{scratch->spare_values.data(), scratch->spare_masses.data()} {}

  // num_equal is 0 where everything is kept.
  TopCut TopK() {
    const float lowest = LowestOfTopK();
    // What equals it can be any number of tokens; it is not collected.
    const float above = std::nextafter(lowest, kInfinity);
    const int size =
        CollectScaled(row_, above, kInfinity, 0, list_.values, nullptr);
    if (size < params_.top_k) {
      if (lowest == kLowest) return {};
      return {lowest, params_.top_k - size};
    }
    std::fill_n(list_.masses, size, 1);
    return CutAtMass(list_, spare_, size, params_.top_k);
  }

  // Top-p of what `top_k` kept.
  TopCut TopPOf(const TopCut& top_k) {
    const float above =
        top_k.num_equal > 0 ? std::nextafter(top_k.value, kInfinity) : kLowest;
    const int size =
        CollectScaled(row_, above, kInfinity, 0, list_.values, nullptr);
    std::fill_n(list_.values + size, top_k.num_equal, top_k.value);
    const int kept = size + top_k.num_equal;
    const int64_t total = Masses(list_.values, kept, best_, list_.masses);
    return CutAtMass(list_, spare_, kept, Wanted(static_cast<double>(total)));
  }

  TopCut TopP(double estimated_sum) {
    // Where few tokens are kept, the cut is nearly always the same for all that
    // the total may be.
    if (estimated_sum > 0.99) {
      const MassBounds total =
          BoundsOfTotalMass(estimated_sum, best_, row_.count);
      const int size = CollectLikeliest(Wanted(total.lower), kFewTokens);
      if (size > 0) {
        const TopCut cut = CutAtMass(list_, spare_, size, Wanted(total.lower));
        if (static_cast<double>(cut.mass) >= Wanted(total.upper)) return cut;
      }
    }
    const double wanted = Wanted(static_cast<double>(TotalMass(row_, best_)));
    return CutAtMass(list_, spare_, CollectLikeliest(wanted, row_.count),
                     wanted);
  }

 private:
  double Wanted(double total) const {
    return static_cast<double>(params_.top_p) * total;
  }

  // Fills the list with the likeliest tokens, which have the mass that is
  // wanted, and returns how many; 0 where it takes more than `most`.
  int CollectLikeliest(double wanted, int most) {
    int size = 0;
    int64_t mass = 0;
    float below = kInfinity;
    for (const float difference : kBands) {
      const float lowest = best_ + difference;
      const int begin = size;
      size = CollectScaled(row_, lowest, below, begin, list_.values, nullptr);
      if (size > most) return 0;
      mass += Masses(list_.values + begin, size - begin, best_,
                     list_.masses + begin);
      if (static_cast<double>(mass) >= wanted) break;
      below = lowest;
    }
    return size;
  }

  // A value that at least top_k tokens reach, and few more: the k-th largest
  // of the groups' maxima. kLowest where there are not so many.
  float LowestOfTopK() {
    int size = 0;
    for (int g = 0; g < NumGroups(row_.count); ++g) {
      list_.values[size] = row_.maxima[g];
      size += row_.maxima[g] >= kLowest ? 1 : 0;
    }
    if (size < params_.top_k) return kLowest;
    std::fill_n(list_.masses, size, 1);
    return CutAtMass(list_, spare_, size, params_.top_k).value;
  }

  const SamplingParams& params_;
  const LogitRow& row_;
  const float best_;
  const ValueList list_;
  const ValueList spare_;
};

}  // namespace

SamplingCut FindCut(const SamplingParams& params, const LogitRow& row,
                    float best, double estimated_sum,
                    SamplingScratch* scratch) {
  CutFinder finder(params, row, best, scratch);
  const bool has_top_k = params.top_k > 0 && params.top_k < row.count;
  const bool has_top_p = params.top_p < 1.0f;
  TopCut top;
  if (has_top_k) {
    top = finder.TopK();
    if (has_top_p) top = finder.TopPOf(top);
  } else if (has_top_p) {
    top = finder.TopP(estimated_sum);
  }
  if (top.num_equal == 0) return {};
  const int32_t last_id =
      FindScaled(row, AllGroups(row), top.value, top.num_equal);
  NACRE_CHECK(last_id >= 0, "the cut of a row is not in it");
  return {top.value, last_id};
}

}  // namespace nacre::model
