// The law of what clients get by the ratio test while workers and connections
// fail: one small request in many schedules, counted.
//
// Pure.

#ifndef TESTS_SIMULATION_PROTOCOL_RATIO_LAW_H_
#define TESTS_SIMULATION_PROTOCOL_RATIO_LAW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "speculation/pipeline.h"
#include "tests/simulation/protocol/outcome.h"
#include "tests/simulation/protocol/schedule.h"

namespace nacre::protocol {

// A right program exceeds this deviation once in 10^8 times, in one of sixty
// once in 1.5 million.
inline constexpr double kLawCritical = 5.612;

struct LawCase {
  speculation::Method method = speculation::Method::kSd;
  DraftKind draft_kind = DraftKind::kAdversarial;
  // Every worker is lost at one moment of nearly every request, and none that
  // drafts comes back in time: what was lost is drawn without one.
  bool loses_all = false;
  bool ends = false;  // end tokens count
  // Every draft is lost at one moment of the first drafts. One comes back while
  // the target verifies what was left: its tokens stand after others.
  bool swaps_draft = false;
  // One target, one draft, and nothing fails; of this window and length policy.
  bool is_quiet = false;
  int window = 3;
  const char* policy = "";
};

// Two targets and two drafts, unless it is quiet. Unless all are lost, the
// second draft may be of any kind, and there are up to four faults while the
// request runs.
Schedule LawSchedule(const LawCase& law_case, uint64_t seed);

struct LawCounts {
  LawCounts(int table, bool ends);

  void Add(const std::vector<int32_t>& tokens);

  // How far the counts are from the target's own law, in standard deviations of
  // chi-square (tests/testing/chi_square.h): the first two tokens together, and
  // the last that a draft may draw, given the two before it, on which alone it
  // depends.
  double FirstPair() const;
  double LaterGivenPrefix() const;

  int table;
  bool ends;
  std::vector<int> pairs;  // [first, second]; 0 after an end
  std::vector<int> later;  // [the two before it, the later one]
};

struct LawResult {
  std::string failure;  // of the first schedule that failed; none did: empty
  LawCounts deviation_of;
  Counts totals;
};

LawResult MeasureLaw(const LawCase& law_case, int num_samples);

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_RATIO_LAW_H_
