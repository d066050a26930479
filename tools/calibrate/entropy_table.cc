#include "tools/calibrate/entropy_table.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace nacre::tools {
namespace {

constexpr double kBounds[] = {0.01, 0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0};

}  // namespace

std::vector<EntropyBin> AcceptanceByEntropy(
    absl::Span<const RecordedToken* const> tokens) {
  std::vector<EntropyBin> bins;
  for (const double bound : kBounds) bins.push_back({bound});
  bins.push_back({std::numeric_limits<double>::infinity()});
  for (const RecordedToken* token : tokens) {
    EntropyBin& bin = *std::find_if(
        bins.begin(), bins.end() - 1, [&](const EntropyBin& candidate) {
          return token->line.entropy < candidate.below;
        });
    ++bin.tokens;
    bin.accepted += token->accepted ? 1 : 0;
  }
  return bins;
}

std::string EntropyLine(absl::Span<const EntropyBin> bins) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < bins.size(); ++i) {
    const EntropyBin& bin = bins[i];
    if (bin.tokens == 0) continue;
    const std::string range =
        std::isfinite(bin.below) ? absl::StrFormat("< %g", bin.below)
        : i > 0                  ? absl::StrFormat(">= %g", bins[i - 1].below)
                                 : std::string("all");
    parts.push_back(absl::StrFormat("%s: %.1f %% of %d", range,
                                    100.0 * bin.accepted / bin.tokens,
                                    bin.tokens));
  }
  return absl::StrJoin(parts, "; ");
}

}  // namespace nacre::tools
