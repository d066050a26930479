// Tokens that the cuda backend draws from logits where they are, against the
// sampler on the host: on the emulated device, and on a GPU where there is one.

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "kernels/token_drawer.h"
#include "model/sampler.h"
#include "tests/model/random_rows.h"

namespace nacre::model {
namespace {

class DeviceDrawTest : public ::testing::Test {
 protected:
  void SetUp() override {
    kernels::BackendOptions options;
    options.kind = "cuda";
    auto backend = kernels::CreateBackend(options);
#ifndef NACRE_EMULATED_CUDA
    if (backend.status().code() == absl::StatusCode::kFailedPrecondition) {
      GTEST_SKIP() << backend.status();
    }
#endif
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    ASSERT_NE(backend_->token_drawer(), nullptr);
  }

  // Rows of `cols` logits each, in device memory that begins where a row of
  // another length would: `offset` floats past what it is aligned to.
  std::vector<int32_t> Draw(const std::vector<float>& logits, int cols,
                            absl::Span<const kernels::RowDraw> draws,
                            size_t offset = 0) {
    const size_t bytes = logits.size() * sizeof(float);
    const auto device = *backend_->Allocate(bytes + offset * sizeof(float));
    const auto device_ids = *backend_->Allocate(draws.size() * sizeof(int32_t));
    const auto ids = *backend_->AllocateOnHost(draws.size() * sizeof(int32_t));
    backend_->CopyFromHost(logits.data(), bytes, device->f32() + offset);
    backend_->token_drawer()->Draw(device->f32() + offset, cols, draws,
                                   static_cast<int32_t*>(device_ids->data()));
    backend_->QueueCopyToHost(device_ids->data(),
                              draws.size() * sizeof(int32_t), ids->data());
    const absl::Status status = backend_->Synchronize();
    EXPECT_TRUE(status.ok()) << status;
    const auto* const begin = static_cast<const int32_t*>(ids->data());
    return {begin, begin + draws.size()};
  }

  // Draws from all rows, all in one call, and compares.
  struct Request {
    std::vector<float> logits;
    SamplingParams params;
    int position = 0;
    int vocab_limit = 0;
  };
  void ExpectTheSamplersTokens(const std::vector<Request>& requests,
                               size_t offset = 0) {
    const int cols = static_cast<int>(requests[0].logits.size());
    std::vector<float> logits;
    std::vector<kernels::RowDraw> draws;
    std::vector<int32_t> expected;
    SamplingScratch scratch;
    for (const Request& request : requests) {
      Sampler sampler(request.params, request.vocab_limit, {}, &scratch);
      const auto draw = sampler.DeviceDraw(request.position);
      ASSERT_TRUE(draw.has_value());
      draws.push_back({*draw, static_cast<int>(draws.size())});
      expected.push_back(AsDrawn(
          request.logits, request.vocab_limit,
          sampler.Sample(request.logits, request.position, TokenHistory(0))));
      logits.insert(logits.end(), request.logits.begin(), request.logits.end());
    }
    const std::vector<int32_t> actual = Draw(logits, cols, draws, offset);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(actual[i], expected[i])
          << "row " << i << " of " << cols << ", limit "
          << requests[i].vocab_limit << ", temperature "
          << requests[i].params.temperature;
    }
  }

  std::unique_ptr<kernels::Backend> backend_;
};

std::vector<float> AnyLogits(std::mt19937* rng, int count) {
  return (*rng)() % 2 == 0 ? RandomLogits(rng, count) : HardLogits(rng, count);
}

SamplingParams AnyDraw(std::mt19937& rng) {
  SamplingParams params;
  params.temperature =
      Pick(rng, {0.0f, 0.3f, 1.0f, 2.0f, 1e-3f, 50.0f, 1e-40f, 1e30f});
  params.seed = rng() * uint64_t{0x100000001};
  return params;
}

TEST_F(DeviceDrawTest, DrawsTheSamplersTokens) {
  std::mt19937 rng(1);
  // Below, at and above a group, a block and a part of a row; aligned or not.
  for (const int vocab :
       {1, 2, 3, 63, 64, 65, 300, 1023, 1024, 1025, 4096, 5001}) {
    for (int trial = 0; trial < 4; ++trial) {
      std::vector<Request> requests;
      for (int row = 0; row < 16; ++row) {
        requests.push_back(
            {AnyLogits(&rng, vocab), AnyDraw(rng),
             static_cast<int>(rng() % 100000),
             std::max(1, vocab - static_cast<int>(rng() % 70) *
                                     static_cast<int>(rng() % 2))});
      }
      ExpectTheSamplersTokens(requests, /*offset=*/rng() % 4);
    }
  }
}

TEST_F(DeviceDrawTest, DrawsTheSamplersTokensOfALargeVocabulary) {
  std::mt19937 rng(2);
  constexpr int kVocab = 128256;
  std::vector<Request> requests;
  for (const float temperature : {0.0f, 0.3f, 1.0f, 2.0f}) {
    for (const int limit : {kVocab, 128000}) {
      SamplingParams params;
      params.temperature = temperature;
      params.seed = rng() * uint64_t{0x100000001};
      requests.push_back({AnyLogits(&rng, kVocab), params,
                          static_cast<int>(rng() % 100000), limit});
    }
  }
  ExpectTheSamplersTokens(requests);
}

// Of rows that are alike every token has its chance, so seeds and positions
// decide.
TEST_F(DeviceDrawTest, SeedsAndPositionsAreTheSamplers) {
  std::mt19937 rng(3);
  std::vector<Request> requests;
  const std::vector<float> flat(257, 1.5f);
  for (int i = 0; i < 300; ++i) {
    SamplingParams params;
    params.temperature = 1.0f;
    params.seed = i % 3 == 0 ? rng() : rng() * uint64_t{0x100000001};
    const int position = i % 5 == 0 ? 1 << 30 : static_cast<int>(rng() % 5000);
    requests.push_back({flat, params, position, 257});
  }
  ExpectTheSamplersTokens(requests);
}

TEST_F(DeviceDrawTest, HasTheSamplersEdges) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  const std::vector<std::vector<float>> rows = {
      std::vector<float>(70, kNaN),      std::vector<float>(70, -kInfinity),
      std::vector<float>(70, -kLargest),  // -inf once divided by 0.3
      std::vector<float>(70, kLargest),   // inf, likewise
      std::vector<float>(70, kInfinity), std::vector<float>(70, 0.0f),
      std::vector<float>(70, -0.0f),     std::vector<float>(70, kTiny),
  };
  std::vector<Request> requests;
  const auto add = [&](const std::vector<float>& row) {
    for (const float temperature : {0.0f, 0.3f, 1.0f, 2.0f, 1e-40f}) {
      SamplingParams params;
      params.temperature = temperature;
      params.seed = requests.size();
      requests.push_back({row, params, 7, 70});
    }
  };
  for (const std::vector<float>& row : rows) add(row);
  // One that differs from the others, in all combinations; and two of it.
  for (const std::vector<float>& row : rows) {
    for (const float other : {kNaN, -kInfinity, kInfinity, kLargest, -kLargest,
                              kTiny, -kTiny, 0.0f, -0.0f}) {
      std::vector<float> mixed = row;
      mixed[66] = other;
      add(mixed);
      mixed[3] = other;
      add(mixed);
      for (const float rest : {kNaN, -kInfinity}) {
        std::fill(mixed.begin() + 4, mixed.end(), rest);
        add(mixed);
      }
    }
  }
  // Not the largest of those that are certain by their first id.
  std::vector<float> certain(70, 1.0f);
  certain[5] = 2e38f;
  certain[60] = 3e38f;
  add(certain);
  ExpectTheSamplersTokens(requests);
}

TEST_F(DeviceDrawTest, OneNaNIsSeenWhereverItStands) {
  std::mt19937 rng(5);
  // Three parts of a row, each found by a block of its own.
  constexpr int kCols = 2100;
  std::normal_distribution<float> normal;
  std::vector<Request> requests;
  for (const float temperature : {0.0f, 0.8f}) {
    for (const size_t place : {0, 1, 3, 4, 1023, 1024, 2047, 2048, 2099}) {
      Request request;
      for (int id = 0; id < kCols; ++id) request.logits.push_back(normal(rng));
      request.logits[place] = kNaN;
      request.params.temperature = temperature;
      request.params.seed = rng();
      for (const int limit : {kCols, 2099}) {
        request.vocab_limit = limit;
        requests.push_back(request);
      }
    }
  }
  ExpectTheSamplersTokens(requests);
}

TEST_F(DeviceDrawTest, RowsMayBeLeftOutAndDrawnFromTwice) {
  std::mt19937 rng(4);
  const int cols = 100;
  const std::vector<float> logits = RandomLogits(&rng, 5 * cols);
  const auto draw = [&](int row, uint64_t seed) {
    return kernels::RowDraw{{seed, 9, 1.0f, cols}, row};
  };
  const auto all = Draw(logits, cols, {draw(0, 1), draw(3, 2), draw(4, 3)});
  const auto some = Draw(logits, cols, {draw(4, 3), draw(3, 2), draw(3, 2)});
  EXPECT_EQ(some, (std::vector<int32_t>{all[2], all[1], all[1]}));
}

TEST_F(DeviceDrawTest, RefusesADrawFromMoreThanThereIs) {
  // A process that has used a GPU cannot go on with it as a fork: in one of its
  // own.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const kernels::RowDraw draw = {{1, 9, 1.0f, 101}, 0};
  EXPECT_DEATH(Draw(std::vector<float>(100), 100, {draw}),
               "a draw from more ids than there are");
}

}  // namespace
}  // namespace nacre::model
