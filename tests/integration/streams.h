// Streams of answers whose tokens are known: what a fault must not change.

#ifndef TESTS_INTEGRATION_STREAMS_H_
#define TESTS_INTEGRATION_STREAMS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/integration/service_fixture.h"

namespace nacre::integration {

using Tokens = std::vector<uint32_t>;

inline Tokens Ids(const v1::Complete& complete) {
  return {complete.token_ids().begin(), complete.token_ids().end()};
}

// Prompt and parameters of kind `kind`; its tokens are the same for every
// method.
inline v1::GenerateRequest StreamRequest(int kind, v1::Method method,
                                         int max_tokens) {
  v1::GenerateRequest request =
      Request(absl::StrCat("Question: A baker makes ", 12 + kind,
                           " loaves and sells 7 of them. How many are left?\n"
                           "Answer:"),
              method, max_tokens);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_output()->set_stream(true);
  v1::SamplingParams& sampling = *request.mutable_sampling();
  sampling.set_seed(5 + kind);
  // Kind 0 is greedy; the penalties of kind 2 count what was generated before a
  // fault.
  if (kind > 0) sampling.set_temperature(0.8f);
  if (kind == 2) {
    sampling.set_repetition_penalty(1.2f);
    sampling.set_frequency_penalty(0.3f);
    sampling.set_top_p(0.95f);
  }
  return request;
}

struct StreamOutcome {
  absl::Status status;
  Tokens streamed;
};

// Runs it to its end. Each chunk must continue where the last one ended, and an
// answer must be what was streamed. `on_tokens` is told how many there are.
inline StreamOutcome RunStream(
    Service& service, const v1::GenerateRequest& request,
    const std::function<void(size_t)>& on_tokens = [](size_t) {}) {
  StreamOutcome outcome;
  const auto complete = service.client().Generate(
      request, kCallTimeout, [&](const v1::Chunk& chunk) {
        EXPECT_EQ(chunk.first_index(), outcome.streamed.size());
        outcome.streamed.insert(outcome.streamed.end(),
                                chunk.token_ids().begin(),
                                chunk.token_ids().end());
        on_tokens(outcome.streamed.size());
      });
  outcome.status = complete.status();
  if (complete.ok()) {
    EXPECT_EQ(Ids(*complete), outcome.streamed);
  }
  return outcome;
}

// The tokens of each kind below `num_kinds`, from a quiet service.
inline std::vector<Tokens> QuietRun(Service& service, int num_kinds,
                                    int max_tokens) {
  std::vector<Tokens> expected;
  for (int kind = 0; kind < num_kinds; ++kind) {
    const StreamOutcome outcome =
        RunStream(service, StreamRequest(kind, v1::METHOD_AR, max_tokens));
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(outcome.streamed.size(), static_cast<size_t>(max_tokens));
    expected.push_back(outcome.streamed);
  }
  return expected;
}

inline v1::Method MethodOf(int i) {
  return static_cast<v1::Method>(v1::METHOD_AR + i % 4);
}

// Runs a stream of every method at once, each of kind `kind`; all must end with
// the tokens expected. `on_tokens` is called from several threads.
inline void ExpectAllMethods(
    Service& service, int kind, const Tokens& expected,
    const std::function<void(size_t)>& on_tokens = [](size_t) {}) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const StreamOutcome outcome = RunStream(
          service,
          StreamRequest(kind, MethodOf(i), static_cast<int>(expected.size())),
          on_tokens);
      EXPECT_TRUE(outcome.status.ok()) << outcome.status;
      EXPECT_EQ(outcome.streamed, expected) << v1::Method_Name(MethodOf(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_STREAMS_H_
