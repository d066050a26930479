// What the two models did in a round: the same names in metrics and traces.

#ifndef COORDINATOR_DISPATCH_ROUND_MODE_H_
#define COORDINATOR_DISPATCH_ROUND_MODE_H_

#include "speculation/pipeline.h"

namespace nacre::coordinator {

enum class RoundMode {
  kPreVerify,   // nothing was drafted yet; the draft goes on meanwhile
  kPostVerify,  // draft tokens were at hand; the draft goes on meanwhile
  kSync,        // they take turns
  kOff,         // without a draft
};
inline constexpr int kNumRoundModes = 4;

inline RoundMode ModeOf(speculation::Method method,
                        const speculation::Verdict& verdict) {
  if (method == speculation::Method::kAr || verdict.degraded) {
    return RoundMode::kOff;
  }
  if (method == speculation::Method::kSd) return RoundMode::kSync;
  return verdict.drafted() == 0 ? RoundMode::kPreVerify
                                : RoundMode::kPostVerify;
}

inline const char* RoundModeName(RoundMode mode) {
  switch (mode) {
    case RoundMode::kPreVerify:
      return "pre_verify";
    case RoundMode::kPostVerify:
      return "post_verify";
    case RoundMode::kSync:
      return "sync";
    case RoundMode::kOff:
      break;
  }
  return "off";
}

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_ROUND_MODE_H_
