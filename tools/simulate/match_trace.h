// Recorded matches, as `nacre bench --match-trace` writes and `nacre simulate
// --match-trace` reads them: one JSON object a line,
// one line a sequence, with one of
//   "ranks": [1, 2, 0, ...]            the rank of the target's token among the
//                                      draft's 8 best, position by position; 0:
//                                      none of them. "scores": [[0, -1.5], ...]
//                                      may say how the draft scored these, less
//                                      its best: they fall from 0. Else all
//                                      positions have those of the mean draft
//   "matches": [1, 1, 0, 1, ...]       whether the draft's token was the
//                                      target's, and no rank of others
//   "accepted_lengths": [2, 0, 5, ...] the same as lengths: so many matches,
//                                      then a mismatch
// "version" is 2 where there are ranks; others are refused. Lines without ranks
// need none. Other keys are left alone, empty lines are skipped.

#ifndef TOOLS_SIMULATE_MATCH_TRACE_H_
#define TOOLS_SIMULATE_MATCH_TRACE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "simulation/match_source.h"

namespace nacre::tools {

// `name` stands for the source in errors. INVALID_ARGUMENT, with the line: not
// a JSON object, none or several of the keys, another version, or no line at
// all. Likewise an empty array, an entry out of range, scores that are not as
// many or rise.
absl::StatusOr<std::vector<std::shared_ptr<const simulation::MatchTrace>>>
ParseMatchTraces(absl::string_view name, absl::string_view content);

// The line of one sequence, not ended. `id` names it for people; the trace is
// not empty. With scores where all positions have some.
std::string MatchTraceLine(absl::string_view id,
                           const simulation::MatchTrace& trace);

}  // namespace nacre::tools

#endif  // TOOLS_SIMULATE_MATCH_TRACE_H_
