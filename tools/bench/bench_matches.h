// Records which draft tokens match, for all prompts of a benchmark, by asking
// for their answers again with `sd` at several windows.

#ifndef TOOLS_BENCH_BENCH_MATCHES_H_
#define TOOLS_BENCH_BENCH_MATCHES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "simulation/match_source.h"
#include "tools/bench/bench_run.h"
#include "tools/generate/generation_client.h"

namespace nacre::tools {

// For each prompt the matches of the tokens of its answer in `result`, in their
// order.
//
// In `sd` the draft waits for every verdict: its first token after one is
// compared, whatever came before. Only what the target adds to a window that
// matched whole has no verdict, and then the next window begins. With windows
// of g and h tokens these are not the same tokens, but for one in (g + 1)(h +
// 1) of a run of matches. So each prompt is asked again, with other windows,
// until every token has one. What the draft says depends on what is committed
// alone, so verdicts of several runs belong together. Nothing is drafted for
// the last token. So one token more than the answer has is asked for where the
// context has room. Where it has none, the last token is left out.
//
// `context_length`: the model's; 0: not known. Errors: those of Generate;
// DATA_LOSS: another answer than before, or the draft changed its mind;
// FAILED_PRECONDITION: a token without a verdict, as there is no draft.
absl::StatusOr<std::vector<simulation::MatchTrace>> RecordMatches(
    const BenchPlan& plan, const BenchResult& result, uint32_t context_length,
    GenerationClient* client,
    const std::function<void(const std::string& line)>& progress);

}  // namespace nacre::tools

#endif  // TOOLS_BENCH_BENCH_MATCHES_H_
