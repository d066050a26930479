// Any bytes as DraftControl messages to a draft worker's engine.

#include <cstddef>
#include <cstdint>

#include "draft_worker/draft_engine.h"
#include "tests/fuzz/worker_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace dw = nacre::draft_worker;
  nacre::testing::TableModel model(nacre::fuzz::SmallModel());
  int64_t now_ns = 1000;
  dw::DraftEngine::Options options;
  options.model = &model;
  options.now_ns = [&now_ns] { return now_ns += 10; };
  options.send = [&model](nacre::worker::StreamId,
                          const dw::DraftEvents& events) {
    for (const auto& tail : events.tails) {
      for (const int32_t id : tail.tail.token_ids) {
        NACRE_CHECK(id >= 0 && id < model.info().vocab_size, "a bad token");
      }
    }
    (void)nacre::wire::Encode(events);
  };
  dw::DraftEngine engine(std::move(options));
  nacre::fuzz::FeedWorker<nacre::v1::DraftControl, dw::DraftCommands>(
      data, size, &model, &engine, &now_ns);
  return 0;
}
