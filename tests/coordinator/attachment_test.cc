#include "coordinator/attachment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

v1::Hello ValidHello() {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_role(v1::WORKER_ROLE_DRAFT);
  hello.set_address("host:1");
  hello.set_incarnation("life");
  hello.set_fingerprint("print");
  hello.set_numerics_id("numerics");
  hello.set_model_name("pearl");
  hello.set_model_vocab_size(300);
  hello.set_tokenizer_vocab_size(290);
  hello.set_context_length(1024);
  return hello;
}

void ExpectRefused(const v1::Hello& hello, absl::StatusCode code,
                   const std::string& part) {
  const absl::StatusOr<WorkerInfo> info = ParseHello(hello);
  EXPECT_EQ(info.status().code(), code);
  EXPECT_THAT(std::string(info.status().message()), HasSubstr(part));
}

TEST(ParseHelloTest, AValidHelloArrivesUnchanged) {
  v1::Hello hello = ValidHello();
  hello.add_eos_token_ids(2);
  hello.set_kv_capacity_tokens(4096);
  v1::StepTime* time = hello.add_step_times();
  time->set_rows(4);
  time->set_duration_ns(5000);
  const absl::StatusOr<WorkerInfo> info = ParseHello(hello);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->role, WorkerRole::kDraft);
  EXPECT_EQ(info->address, "host:1");
  EXPECT_EQ(info->incarnation, "life");
  EXPECT_EQ(info->fingerprint, "print");
  EXPECT_EQ(info->numerics_id, "numerics");
  EXPECT_EQ(info->model_name, "pearl");
  EXPECT_EQ(info->model_vocab_size, 300);
  EXPECT_EQ(info->tokenizer_vocab_size, 290);
  EXPECT_EQ(info->context_length, 1024);
  EXPECT_EQ(info->kv_capacity_tokens, 4096);
  EXPECT_THAT(info->eos_token_ids, ElementsAre(2));
  EXPECT_THAT(info->step_times_ns, ElementsAre(Pair(4, 5000)));
  EXPECT_FALSE(info->abandons_steps);
  hello.set_abandons_steps(true);
  EXPECT_TRUE(ParseHello(hello)->abandons_steps);
  hello.set_role(v1::WORKER_ROLE_TARGET);
  EXPECT_EQ(ParseHello(hello)->role, WorkerRole::kTarget);
}

TEST(ParseHelloTest, AnotherProtocolVersionIsAFailedPrecondition) {
  v1::Hello hello = ValidHello();
  hello.set_protocol_version(kProtocolVersion + 1);
  ExpectRefused(hello, absl::StatusCode::kFailedPrecondition,
                "PROTOCOL_VERSION");
}

TEST(ParseHelloTest, MalformedFieldsAreInvalidByName) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  v1::Hello hello = ValidHello();
  hello.set_role(v1::WORKER_ROLE_UNSPECIFIED);
  ExpectRefused(hello, invalid, "Hello.role");
  hello.set_role(static_cast<v1::WorkerRole>(7));
  ExpectRefused(hello, invalid, "Hello.role is 7");

  struct Name {
    const char* field;
    void (*set)(v1::Hello*, const std::string&);
  };
  for (const Name& name : {
           Name{"Hello.address",
                [](v1::Hello*hello, const std::string&s) {
                  hello->set_address(s);
                }},
           Name{"Hello.incarnation",
                [](v1::Hello*hello, const std::string&s) {
                  hello->set_incarnation(s);
                }},
           Name{"Hello.fingerprint",
                [](v1::Hello*hello, const std::string&s) {
                  hello->set_fingerprint(s);
                }},
           Name{"Hello.numerics_id",
                [](v1::Hello*hello, const std::string&s) {
                  hello->set_numerics_id(s);
                }},
       }) {
    hello = ValidHello();
    name.set(&hello, "");
    ExpectRefused(hello, invalid, name.field);
    name.set(&hello, std::string(1025, 'x'));
    ExpectRefused(hello, invalid, "1025 bytes");
  }
  hello = ValidHello();
  hello.set_model_name("");
  EXPECT_TRUE(ParseHello(hello).ok());

  hello = ValidHello();
  hello.set_model_vocab_size(0);
  ExpectRefused(hello, invalid, "Hello.model_vocab_size is 0");
  hello.set_model_vocab_size((1u << 24) + 1);
  ExpectRefused(hello, invalid, "model_vocab_size is 16777217");
  hello = ValidHello();
  hello.set_tokenizer_vocab_size(0);
  ExpectRefused(hello, invalid, "Hello.tokenizer_vocab_size");
  hello = ValidHello();
  hello.set_context_length(0xFFFFFFFFu);
  ExpectRefused(hello, invalid, "Hello.context_length");
}

TEST(ParseHelloTest, ListsAreBounded) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  v1::Hello hello = ValidHello();
  for (int i = 0; i < 1024; ++i) {
    hello.add_eos_token_ids(7);
    hello.add_step_times()->set_rows(1);
  }
  EXPECT_TRUE(ParseHello(hello).ok());
  hello.add_eos_token_ids(7);
  ExpectRefused(hello, invalid, "eos_token_ids has 1025 entries, at most 1024");
  hello.mutable_eos_token_ids()->RemoveLast();
  hello.add_step_times()->set_rows(1);
  ExpectRefused(hello, invalid, "step_times has 1025 entries, at most 1024");
}

TEST(ParseHelloTest, NumbersOfNoUseAreLeftOut) {
  v1::Hello hello = ValidHello();
  hello.add_eos_token_ids(300);  // outside the head
  hello.set_kv_capacity_tokens(std::numeric_limits<uint64_t>::max());
  v1::StepTime* time = hello.add_step_times();
  time->set_rows(1000000);
  time->set_duration_ns(5);
  const absl::StatusOr<WorkerInfo> info = ParseHello(hello);
  ASSERT_TRUE(info.ok());
  time->set_rows(8);
  time->set_duration_ns(~uint64_t{0});
  EXPECT_THAT(ParseHello(hello)->step_times_ns,
              ElementsAre(Pair(8, kMaxDurationNs)));
  EXPECT_TRUE(info->eos_token_ids.empty());
  EXPECT_TRUE(info->step_times_ns.empty());
  EXPECT_GT(info->kv_capacity_tokens, 0);
}

}  // namespace
}  // namespace nacre::coordinator
