#include "tests/simulation/protocol/simulated_heads.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "common/check.h"
#include "simulation/random.h"

namespace nacre::protocol {
namespace {

using Row = absl::Span<const float>;

int32_t Likeliest(Row row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) -
                              row.begin());
}

// The last token of the first two tokens that the table says this after, and a
// number for them.
struct Place {
  int32_t last = -1;
  uint64_t number = 0;
};

Place FindPlace(const LogitTable& table, Row hidden) {
  for (int32_t before = -1; before < kVocabSize; ++before) {
    for (int32_t last = -1; last < kVocabSize; ++last) {
      if (table.Row(before, last) != hidden) continue;
      return {last, static_cast<uint64_t>((before + 1) * 100 + last + 1)};
    }
  }
  NACRE_CHECK(false, "a hidden state of no row");
  return {};
}

}  // namespace

absl::Span<const float> SimulatedHeads::Run(absl::Span<const float> hidden) {
  constexpr size_t kSize = kVocabSize;
  const size_t num_rows = hidden.size() / kSize;
  if (on_run_) on_run_(static_cast<int>(num_rows));
  logits_.resize(kHeads * hidden.size());
  for (size_t row = 0; row < num_rows; ++row) {
    const Row own = hidden.subspan(row * kSize, kSize);
    const Place place = FindPlace(*target_, own);
    int32_t before = place.last;
    int32_t last = Likeliest(own);
    for (size_t k = 0; k < kHeads; ++k) {
      const Row said = draft_->Row(before, last);
      float* const to = logits_.data() + (k * num_rows + row) * kSize;
      std::copy(said.begin(), said.end(), to);
      const uint64_t silent = simulation::MixBits(place.number * kHeads + k);
      for (size_t id = 0; id < kSize; ++id) {
        if ((silent >> id & 1) == 0) continue;
        to[id] = -std::numeric_limits<float>::infinity();
      }
      before = last;
      last = Likeliest(said);
    }
  }
  return logits_;
}

bool SimulatedHeads::Says(int head, int32_t before, int32_t last,
                          int32_t token_id) {
  if (head >= kHeads) return false;
  const Row logits = Run(target_->Row(before, last));
  return std::isfinite(
      logits[static_cast<size_t>(head * kVocabSize + token_id)]);
}

}  // namespace nacre::protocol
