// Publisher and reader as two workers have them, over a real server, with the
// values by a NCCL of the tests.
//
// Of the test's thread.

#ifndef TESTS_WORKER_TENSORS_NCCL_PAIR_H_
#define TESTS_WORKER_TENSORS_NCCL_PAIR_H_

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/server.h"
#include "tests/worker/tensors/nccl_stand_in.h"
#include "tests/worker/tensors/random_tensor.h"
#include "tests/worker/tensors/recording_sink.h"
#include "worker/tensors/nccl_link.h"
#include "worker/tensors/publisher_service.h"
#include "worker/tensors/reader_client.h"

namespace nacre::worker {

inline constexpr absl::Duration kNever = absl::Hours(1);

inline std::vector<uint32_t> BitsOf(const Tensor& tensor) {
  std::vector<uint32_t> bits;
  for (const float value : tensor.values.host()) {
    bits.push_back(std::bit_cast<uint32_t>(value));
  }
  return bits;
}

// Any bits at all: NaNs, infinities, both zeros.
inline Tensor AnyBits(uint64_t channel, int position, int size) {
  Tensor tensor = RandomTensor(channel, position, size);
  std::mt19937 random(static_cast<uint32_t>(position));
  std::vector<float> values;
  for (int i = 0; i < size; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
  tensor.Own(std::move(values));
  return tensor;
}

class NcclPair : public ::testing::Test {
 protected:
  void Start(const NcclLinks::Options& options = {kNever, kNever}) {
    options_ = options;
    publisher_ = std::make_unique<TensorPublisherService>(Links());
    server_ = *rpc::RpcServer::Start({}, {publisher_.get()});
    reader_ =
        std::make_unique<TensorReaderClient>(rpc::ChannelSecurity(), Links());
  }
  ~NcclPair() override { Stop(); }
  void Stop() {
    if (publisher_ == nullptr) return;
    nccl_.HoldTransfers(false);
    reader_ = nullptr;
    publisher_->EndReaders(absl::UnavailableError("stopping"));
    server_->Shutdown(absl::Seconds(10));
    EXPECT_EQ(publisher_->stats().readers, 0);
    EXPECT_EQ(publisher_->stats().links, 0);
    server_ = nullptr;
    publisher_ = nullptr;
  }

  std::unique_ptr<NcclLinks> Links() {
    return std::make_unique<NcclLinks>(nccl_.Open(), options_);
  }
  std::shared_ptr<RecordingSink> Subscribe(TensorReader& reader,
                                           uint64_t channel, size_t size) {
    auto sink = std::make_shared<RecordingSink>();
    const int before = publisher_->stats().subscriptions;
    reader.Subscribe({server_->address(), channel, size, sink});
    EXPECT_TRUE(
        Eventually([&] { return publisher_->stats().subscriptions > before; }));
    return sink;
  }
  void AwaitUp(int links = 1) {
    EXPECT_TRUE(Eventually([&] { return publisher_->stats().links == links; }));
  }
  void AwaitFailure() {
    EXPECT_TRUE(Eventually([this] {
      return publisher_->stats().link_failures == 1 &&
             reader_->stats().link_failures == 1;
    }));
    EXPECT_EQ(publisher_->stats().links, 0);
    EXPECT_EQ(reader_->stats().links, 0);
  }

  NcclStandIn nccl_;
  NcclLinks::Options options_;
  std::unique_ptr<TensorPublisherService> publisher_;
  std::unique_ptr<rpc::RpcServer> server_;
  std::unique_ptr<TensorReaderClient> reader_;
};

}  // namespace nacre::worker

#endif  // TESTS_WORKER_TENSORS_NCCL_PAIR_H_
