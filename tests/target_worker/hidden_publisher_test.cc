#include "target_worker/hidden_publisher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nacre::target_worker {
namespace {

using ::testing::ElementsAre;

// Keeps what is published; channel 7 has readers.
class KeptTensors : public worker::TensorPublisher {
 public:
  bool HasReaders(uint64_t channel) const override { return channel == 7; }
  void Publish(const worker::Tensor& tensor) override {
    tensors.push_back(tensor.OnHost());
  }
  std::vector<worker::Tensor> tensors;
};

// What the engine makes of it: engine_hidden_test.cc.
TEST(HiddenPublisherTest, PublishesTheLastRowToThoseThatReadIt) {
  using Rows = worker::StepTap::Rows;
  KeptTensors tensors;
  HiddenPublisher publisher(&tensors);
  const std::string request_id = "r";
  worker::TapSession session{
      .key = {1, 2}, .request_id = request_id, .hidden_epoch = 3};
  EXPECT_EQ(publisher.ReadsHidden(session), Rows::kNone);  // no channel
  session.hidden_channel = 6;
  EXPECT_EQ(publisher.ReadsHidden(session), Rows::kNone);  // no readers
  session.hidden_channel = 7;
  EXPECT_EQ(publisher.ReadsHidden(session), Rows::kLast);
  session.is_held = true;
  EXPECT_EQ(publisher.ReadsHidden(session), Rows::kLast);

  // Tokens 10 and 11; the row that gave 11 was fed token 10.
  const std::vector<int32_t> token_ids = {4, 5};
  const std::vector<float> hidden = {1.0f, 2.0f, 3.0f, 4.0f};
  publisher.OnRows(session, {.position = 10,
                             .token_ids = token_ids,
                             .logits = {},
                             .hidden = kernels::FloatView(hidden)});
  ASSERT_EQ(tensors.tensors.size(), 1u);
  const worker::TensorTag tag = {7, 3, 10, 0, true};
  EXPECT_EQ(tensors.tensors[0].tag, tag);
  EXPECT_THAT(tensors.tensors[0].values.host(), ElementsAre(3.0f, 4.0f));

  session.has_ended = true;
  EXPECT_EQ(publisher.ReadsHidden(session), Rows::kNone);
}

}  // namespace
}  // namespace nacre::target_worker
