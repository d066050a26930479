// How often the target agrees with a draft that was this unsure: what every
// policy that looks at entropy can win with a pair.
//
// Pure.

#ifndef TOOLS_CALIBRATE_ENTROPY_TABLE_H_
#define TOOLS_CALIBRATE_ENTROPY_TABLE_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tools/calibrate/recording.h"

namespace nacre::tools {

// Tokens whose row's entropy (nats) is below `below` and not below that of the
// bin before.
struct EntropyBin {
  double below = 0.0;  // infinity: the last bin
  int tokens = 0;
  int accepted = 0;
};

// From certain rows to unsure ones; bins may be empty.
std::vector<EntropyBin> AcceptanceByEntropy(
    absl::Span<const RecordedToken* const> tokens);

// One line, of the bins that are not empty: "< 0.1: 99.1 % of 2000".
std::string EntropyLine(absl::Span<const EntropyBin> bins);

}  // namespace nacre::tools

#endif  // TOOLS_CALIBRATE_ENTROPY_TABLE_H_
