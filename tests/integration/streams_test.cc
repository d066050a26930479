// Many short streams at once, of mixed methods and parameters: each says what
// it says alone on a quiet service, and nothing of them is left.
//
// NACRE_SOAK_SECONDS (label slow: 600) goes on that long and also watches the
// memory of the three processes.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/integration/memory.h"
#include "tests/integration/service_fixture.h"

namespace nacre::integration {
namespace {

constexpr int kRequests = 250;  // of different content
constexpr int kRounds = 4;      // each so often: 1,000 streams
constexpr int kAtOnce = 64;

// The i-th request without its method: any mixture of what a client may ask.
v1::GenerateRequest Content(int i, const std::vector<tools::Prompt>& prompts) {
  v1::GenerateRequest request =
      Request(prompts[i % prompts.size()].text, v1::METHOD_AR, 4 + i % 17);
  v1::SamplingParams& sampling = *request.mutable_sampling();
  sampling.set_seed(1000 + i);
  if (i % 3 != 0) sampling.set_temperature(0.5f + 0.1f * (i % 7));
  if (i % 4 == 1) sampling.set_top_k(1 + i % 50);
  if (i % 5 == 2) sampling.set_top_p(0.85f);
  if (i % 6 == 3) sampling.set_repetition_penalty(1.2f);
  if (i % 7 == 4) sampling.set_frequency_penalty(0.5f);
  if (i % 8 == 5) (*sampling.mutable_logit_bias())[100 + i] = 3.0f;
  v1::StopParams& stop = *request.mutable_stop();
  if (i % 9 == 6) stop.add_stop("e");
  if (i % 10 == 7) stop.set_min_tokens(3);
  if (i % 11 == 8) stop.set_ignore_eos(true);
  if (i % 12 == 9) request.mutable_output()->set_logprobs(i % 4);
  request.mutable_output()->set_stream(i % 2 == 0);
  return request;
}

void Choose(int draw, v1::SpeculationOptions* options) {
  constexpr v1::Method kMethods[] = {v1::METHOD_ASYNC, v1::METHOD_SD,
                                     v1::METHOD_PEARL, v1::METHOD_AR};
  options->set_method(kMethods[draw % 4]);
  if (draw % 3 == 1) options->set_window(1 + draw % 9);
}

// What must not depend on anything but the request.
std::string Essence(const v1::Complete& complete) {
  std::string text = absl::StrCat(complete.finish_reason(), "|",
                                  complete.stop_match(), "|", complete.text());
  for (uint32_t id : complete.token_ids()) absl::StrAppend(&text, ",", id);
  for (const v1::TokenLogprobs& token : complete.logprobs()) {
    absl::StrAppend(&text, ";", token.SerializeAsString());
  }
  return text;
}

// Resident bytes of the three services.
int64_t ResidentBytesOfAll(tools::Supervisor& supervisor) {
  int64_t bytes = 0;
  for (const char* name : {"coordinator", "target-0", "draft-0"}) {
    bytes += ResidentBytes(supervisor.PidOf(name));
  }
  return bytes;
}

class StreamsTest : public ::testing::Test {
 protected:
  StreamsTest() : prompts_(LoadPrompts("gsm8k_100.jsonl", 100)) {
    for (int i = 0; i < kRequests; ++i) {
      requests_.push_back(Content(i, prompts_));
      const auto complete = service_.Generate(requests_.back());
      EXPECT_TRUE(complete.ok()) << complete.status() << " request " << i;
      quiet_.push_back(complete.ok() ? Essence(*complete) : "");
    }
  }

  // Every request kRounds times, kAtOnce at a time.
  void RunAll() {
    std::atomic<int> next{0};
    std::vector<std::thread> clients;
    for (int client = 0; client < kAtOnce; ++client) {
      clients.emplace_back([&] {
        for (int i = next++; i < kRequests * kRounds; i = next++) {
          v1::GenerateRequest request = requests_[i % kRequests];
          Choose(i + i / kRequests, request.mutable_speculation());
          const auto complete = service_.Generate(request);
          EXPECT_TRUE(complete.ok()) << complete.status() << " stream " << i;
          if (!complete.ok()) continue;
          EXPECT_EQ(Essence(*complete), quiet_[i % kRequests])
              << "stream " << i;
          accepted_ += complete->speculation().accepted();
        }
      });
    }
    for (std::thread& client : clients) client.join();
  }

  Service service_;
  std::vector<tools::Prompt> prompts_;
  std::vector<v1::GenerateRequest> requests_;
  std::vector<std::string> quiet_;
  std::atomic<uint64_t> accepted_{0};
};

TEST_F(StreamsTest, EachSaysWhatItSaysAloneAndLeavesNothing) {
  int soak_seconds = 0;
  if (const char* text = std::getenv("NACRE_SOAK_SECONDS")) {
    ASSERT_TRUE(absl::SimpleAtoi(text, &soak_seconds)) << text;
  }
  RunAll();
  EXPECT_TRUE(service_.KvReturnsToEmpty());
  EXPECT_GT(accepted_, 100u);  // the draft took part
  if (soak_seconds == 0 || HasFailure()) return;

  RunAll();  // twice: caches and arenas have their size
  tools::Supervisor& supervisor = service_.cluster().supervisor();
  const int64_t before = ResidentBytesOfAll(supervisor);
  const absl::Time end = absl::Now() + absl::Seconds(soak_seconds);
  while (absl::Now() < end && !HasFailure()) RunAll();
  EXPECT_TRUE(service_.KvReturnsToEmpty());
  const int64_t after = ResidentBytesOfAll(supervisor);
  RecordProperty("resident_mib_before", static_cast<int>(before >> 20));
  RecordProperty("resident_mib_after", static_cast<int>(after >> 20));
  EXPECT_LT(after, before + before / 20) << "resident bytes grow";
}

}  // namespace
}  // namespace nacre::integration
