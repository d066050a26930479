#include "common/rpc/message_bytes.h"

#include <gmock/gmock.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/inference.pb.h"

namespace nacre::rpc {
namespace {

using ::testing::HasSubstr;

constexpr int kMaxFields = 8;

// In two slices, as they may arrive.
grpc::ByteBuffer Buffer(const std::string& bytes) {
  const size_t half = bytes.size() / 2;
  const std::vector<grpc::Slice> slices = {grpc::Slice(bytes.substr(0, half)),
                                           grpc::Slice(bytes.substr(half))};
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status Parse(const std::string& bytes, v1::GenerateRequest* request) {
  return ParseMessage(Buffer(bytes), kMaxFields, request);
}

void ExpectRefused(const std::string& bytes, const std::string& part) {
  v1::GenerateRequest request;
  const absl::Status status = Parse(bytes, &request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

std::string Repeat(const std::string& bytes, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += bytes;
  return all;
}

TEST(MessageBytesTest, ParsesWhatWasSerialized) {
  v1::GenerateRequest request;
  request.set_text("hello");
  request.mutable_stop()->add_stop("end");
  request.mutable_stop()->add_stop_token_ids(7);
  (*request.mutable_sampling()->mutable_logit_bias())[3] = 1.5f;
  v1::GenerateRequest parsed;
  const absl::Status status = Parse(request.SerializeAsString(), &parsed);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(parsed.SerializeAsString(), request.SerializeAsString());
  v1::GenerateRequest empty;
  EXPECT_TRUE(Parse("", &empty).ok());
}

TEST(MessageBytesTest, NumbersAreNotCounted) {
  v1::GenerateRequest request;
  for (int i = 0; i < 1000; ++i) {
    request.mutable_token_ids()->add_ids(i);
    request.mutable_stop()->add_stop_token_ids(i);
  }
  v1::GenerateRequest parsed;
  EXPECT_TRUE(Parse(request.SerializeAsString(), &parsed).ok());
  EXPECT_EQ(parsed.token_ids().ids_size(), 1000);
  // Not packed: TokenIds.ids, each with its tag.
  const std::string ids = Repeat("\x08\x05", 50);
  v1::GenerateRequest apart;
  EXPECT_TRUE(Parse("\x22\x64" + ids, &apart).ok());
  EXPECT_EQ(apart.token_ids().ids_size(), 50);
}

TEST(MessageBytesTest, TooManyCostlyFieldsAreRefusedAtAnyDepth) {
  const std::string too_many = "has more than 8 strings, messages and unknown";
  const auto stops = [](int count) {  // StopParams.stop, empty
    return std::string("\x32") + static_cast<char>(2 * count) +
           Repeat(std::string("\x12\x00", 2), count);
  };
  v1::GenerateRequest request;
  EXPECT_TRUE(Parse(stops(kMaxFields - 1), &request).ok());
  ExpectRefused(stops(kMaxFields), too_many);
  // A field of no schema: number 15, a varint.
  EXPECT_TRUE(Parse(Repeat("\x78\x01", kMaxFields), &request).ok());
  ExpectRefused(Repeat("\x78\x01", kMaxFields + 1), too_many);
  // `text` as a varint is as unknown.
  ExpectRefused(Repeat("\x18\x01", kMaxFields + 1), too_many);
  // The same message again and again is merged, and costs time.
  ExpectRefused(Repeat(std::string("\x32\x00", 2), kMaxFields + 1), too_many);
}

TEST(MessageBytesTest, BytesThatAreNoMessageAreRefused) {
  const std::string no_message = "the bytes are no GenerateRequest";
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        std::string("\x1a\x05"
                    "abc"),                  // shorter than it says
        std::string("\x1a\x01\xff"),         // text that is not UTF-8
        std::string("\x32\x7f\x12\x00", 4),  // a message, likewise
        std::string("\x32\x03\x12\x05"
                    "abcde"),     // longer than its message
        std::string("\x7b\x7c"),  // a group
        std::string("\x7c")}) {   // the end of one
    ExpectRefused(bytes, no_message);
  }
}

}  // namespace
}  // namespace nacre::rpc
