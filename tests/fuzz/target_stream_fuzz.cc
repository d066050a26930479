// Any bytes as TargetControl messages to a target worker's engine. What it
// commits is contiguous, and ends where it says so.

#include <cstddef>
#include <cstdint>
#include <map>

#include "target_worker/target_engine.h"
#include "tests/fuzz/worker_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace tw = nacre::target_worker;
  using nacre::speculation::FinishReason;
  using nacre::speculation::Verdict;
  nacre::testing::TableModel model(nacre::fuzz::SmallModel());
  int64_t now_ns = 1000;
  // The last verdict of each open session.
  std::map<nacre::worker::SessionKey, Verdict> last;
  tw::TargetEngine::Options options;
  options.model = &model;
  options.now_ns = [&now_ns] { return now_ns += 10; };
  options.send = [&](nacre::worker::StreamId stream,
                     const tw::TargetEvents& events) {
    // An id may be used again; a step's verdicts come after the commands.
    for (const auto& opening : events.common.opened) {
      last.erase({stream, opening.session_id});
    }
    for (const auto& reported : events.verdicts) {
      const Verdict& verdict = reported.verdict;
      const auto [it, first] =
          last.try_emplace({stream, reported.session_id}, verdict);
      const Verdict& before = it->second;
      NACRE_CHECK(!verdict.token_ids.empty(), "a verdict without a token");
      NACRE_CHECK(first || before.finish == FinishReason::kNone,
                  "a verdict after the end");
      NACRE_CHECK(first || verdict.base_length ==
                               before.base_length +
                                   static_cast<int>(before.token_ids.size()),
                  "verdicts are not contiguous");
      for (const int32_t token : verdict.token_ids) {
        NACRE_CHECK(token >= 0 && token < model.info().vocab_size,
                    "a bad token");
      }
      it->second = verdict;
    }
    (void)nacre::wire::Encode(events);
  };
  tw::TargetEngine engine(std::move(options));
  nacre::fuzz::FeedWorker<nacre::v1::TargetControl, tw::TargetCommands>(
      data, size, &model, &engine, &now_ns);
  return 0;
}
