// Each bug planted in a GliDe draft (glide_mutants.cmake) takes its logits far
// from PyTorch's; without one they are near.

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/model/glide_golden.h"
#include "tests/testing/mutant.h"

namespace nacre::model {
namespace {

float LargestGlideDifference() {
  float largest = 0;
  for (const std::string kind : kGlideKinds) {
    GlidePair pair("cpu", GlideFolder(kind));
    EXPECT_TRUE(pair.status.ok()) << pair.status;
    largest = std::max(largest, pair.Difference(ReadGlideGolden(kind)));
  }
  return largest;
}

TEST(GlideMutantsTest, EachIsFound) {
  const std::vector<std::string> mutants = absl::StrSplit(NACRE_MUTANTS, ',');
  EXPECT_LE(LargestGlideDifference(), 1e-3f);
  for (const std::string& mutant : mutants) {
    active_mutant = mutant;
    // A difference that is no number is found, too.
    EXPECT_FALSE(LargestGlideDifference() <= 0.02f) << mutant;
  }
  active_mutant = {};
}

}  // namespace
}  // namespace nacre::model
