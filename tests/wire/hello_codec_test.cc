#include "wire/hello_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "wire/session_events.h"

namespace nacre::wire {
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
  const absl::StatusOr<Hello> info = Decode(hello);
  EXPECT_EQ(info.status().code(), code);
  EXPECT_THAT(std::string(info.status().message()), HasSubstr(part));
}

TEST(HelloCodecTest, AValidHelloArrivesUnchanged) {
  v1::Hello hello = ValidHello();
  hello.add_eos_token_ids(2);
  hello.set_kv_capacity_tokens(4096);
  v1::StepTime* time = hello.add_step_times();
  time->set_rows(4);
  time->set_duration_ns(5000);
  const absl::StatusOr<Hello> info = Decode(hello);
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
  EXPECT_TRUE(Decode(hello)->abandons_steps);
  EXPECT_FALSE(info->drafts_chains);
  hello.set_drafts_chains(true);
  EXPECT_TRUE(Decode(hello)->drafts_chains);
  EXPECT_FALSE(info->grants_kv);
  hello.set_grants_kv(true);
  EXPECT_TRUE(Decode(hello)->grants_kv);
  EXPECT_EQ(info->vocabulary_share, 1);
  hello.set_vocabulary_share(0);
  EXPECT_EQ(Decode(hello)->vocabulary_share, 0);
  hello.set_role(v1::WORKER_ROLE_TARGET);
  EXPECT_EQ(Decode(hello)->role, WorkerRole::kTarget);
}

TEST(HelloCodecTest, AHelloSurvivesTheWire) {
  Hello hello;
  hello.role = WorkerRole::kDraft;
  hello.address = "host:1";
  hello.incarnation = "life";
  hello.fingerprint = "print";
  hello.numerics_id = "numerics";
  hello.model_name = "pearl";
  hello.model_vocab_size = 300;
  hello.tokenizer_vocab_size = 290;
  hello.vocabulary_share = 0.75;
  hello.context_length = 1024;
  hello.eos_token_ids = {2, 299};
  hello.kv_capacity_tokens = 1 << 20;
  hello.step_times_ns = {{1, 5000}, {512, kMaxDurationNs}};
  hello.policy_files = {{"disco", "print"}, {"specdec", "other"}};
  hello.abandons_steps = true;
  hello.drafts_chains = true;
  hello.grants_kv = true;
  EXPECT_EQ(Encode(hello).protocol_version(), kProtocolVersion);
  const absl::StatusOr<Hello> back = Decode(Encode(hello));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, hello);
}

TEST(HelloCodecTest, AnotherProtocolVersionIsAFailedPrecondition) {
  v1::Hello hello = ValidHello();
  hello.set_protocol_version(kProtocolVersion + 1);
  ExpectRefused(hello, absl::StatusCode::kFailedPrecondition,
                "PROTOCOL_VERSION");
}

TEST(HelloCodecTest, MalformedFieldsAreInvalidByName) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  v1::Hello hello = ValidHello();
  hello.set_role(v1::WORKER_ROLE_UNSPECIFIED);
  ExpectRefused(hello, invalid, "Hello.role");
  hello.set_role(static_cast<v1::WorkerRole>(7));
  ExpectRefused(hello, invalid, "Hello.role is 7");

  for (const double share : {-0.1, 1.1, std::nan("")}) {
    hello = ValidHello();
    hello.set_vocabulary_share(share);
    ExpectRefused(hello, invalid, "Hello.vocabulary_share is ");
  }

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
  EXPECT_TRUE(Decode(hello).ok());

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

TEST(HelloCodecTest, ListsAreBounded) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  v1::Hello hello = ValidHello();
  for (int i = 0; i < 1024; ++i) {
    hello.add_eos_token_ids(7);
    hello.add_step_times()->set_rows(1);
  }
  EXPECT_TRUE(Decode(hello).ok());
  hello.add_eos_token_ids(7);
  ExpectRefused(hello, invalid, "eos_token_ids has 1025 entries, at most 1024");
  hello.mutable_eos_token_ids()->RemoveLast();
  hello.add_step_times()->set_rows(1);
  ExpectRefused(hello, invalid, "step_times has 1025 entries, at most 1024");
}

TEST(HelloCodecTest, PolicyFilesAreTakenOverWithinLimits) {
  v1::Hello hello = ValidHello();
  v1::PolicyFile* file = hello.add_policy_files();
  file->set_policy("disco");
  file->set_target_fingerprint("big");
  const absl::StatusOr<Hello> info = Decode(hello);
  ASSERT_TRUE(info.ok()) << info.status();
  ASSERT_EQ(info->policy_files.size(), 1u);
  EXPECT_EQ(info->policy_files[0].first, "disco");
  EXPECT_EQ(info->policy_files[0].second, "big");
  file->clear_target_fingerprint();
  EXPECT_THAT(std::string(Decode(hello).status().message()),
              HasSubstr("policy_files.target_fingerprint has 0 bytes"));
  file->set_target_fingerprint("big");
  for (int i = 0; i < 64; ++i) *hello.add_policy_files() = *file;
  EXPECT_THAT(std::string(Decode(hello).status().message()),
              HasSubstr("policy_files has 65 entries, at most 64"));
}

TEST(HelloCodecTest, NumbersOfNoUseAreLeftOut) {
  v1::Hello hello = ValidHello();
  hello.add_eos_token_ids(300);  // outside the head
  hello.set_kv_capacity_tokens(std::numeric_limits<uint64_t>::max());
  v1::StepTime* time = hello.add_step_times();
  time->set_rows(1000000);
  time->set_duration_ns(5);
  const absl::StatusOr<Hello> info = Decode(hello);
  ASSERT_TRUE(info.ok());
  time->set_rows(8);
  time->set_duration_ns(~uint64_t{0});
  EXPECT_THAT(Decode(hello)->step_times_ns,
              ElementsAre(Pair(8, kMaxDurationNs)));
  EXPECT_TRUE(info->eos_token_ids.empty());
  EXPECT_TRUE(info->step_times_ns.empty());
  EXPECT_GT(info->kv_capacity_tokens, 0);
}

}  // namespace
}  // namespace nacre::wire
