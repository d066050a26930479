#include "draft_worker/policy_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/draft_worker/policy_folder.h"

namespace nacre::draft_worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

model::ModelInfo SmallDraft() {
  model::ModelInfo info;
  info.fingerprint = "small";
  info.hidden_size = 4;
  return info;
}

speculation::PolicySpec Parse(const std::string& text) {
  return *speculation::ParsePolicySpec(text);
}

TEST(PolicyLibrary, WithoutFilesItHasThePoliciesThatNeedNone) {
  PolicyLibrary library;
  EXPECT_THAT(library.files(), IsEmpty());
  for (const char* text :
       {"constant:n=3", "heuristic", "confidence", "svip", "beta-ts", "cali-ts",
        "optimal-static:gamma=4", "oracle"}) {
    const auto made = library.Make(Parse(text), {});
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_NE(made->length, nullptr) << text;
  }
  for (const char* text : {"constant", "load"}) {
    EXPECT_EQ(library.Make(Parse(text), {})->length, nullptr);
  }
  for (const char* text : {"disco", "specdec++", "optimal-static"}) {
    EXPECT_EQ(library.Make(Parse(text), {}).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
}

TEST(PolicyLibrary, LoadsFoldersAndSaysForWhichTarget) {
  testing::PolicyFolder disco;
  disco.WriteJson("disco", "small", "big");
  disco.WriteTensors(testing::DiscoTensors());
  testing::PolicyFolder head;
  head.WriteJson("specdec++", "small", "bigger");
  head.WriteTensors(testing::HeadTensors(4));
  auto library = PolicyLibrary::Load(
      {{"specdec++", head.path()}, {"disco", disco.path()}}, SmallDraft());
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_THAT(library->files(),
              ElementsAre(Pair("disco", "big"), Pair("specdec++", "bigger")));
  EXPECT_TRUE(library->Make(Parse("disco:max=3"), {}).ok());
  speculation::PolicyInputs inputs;
  inputs.hidden_size = 4;
  EXPECT_TRUE(library->Make(Parse("specdec++"), inputs).ok());
  EXPECT_EQ(PolicyLibrary::Load({{"disco", head.path()}}, SmallDraft())
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PolicyLibrary, AFileOfAnotherTargetIsNotUsed) {
  testing::PolicyFolder disco;
  disco.WriteJson("disco", "small", "big");
  disco.WriteTensors(testing::DiscoTensors());
  testing::PolicyFolder gamma;
  gamma.WriteJson("optimal-static", "small", "big",
                  {{"parameters", {{"gamma", 7}}}});
  testing::PolicyFolder cali;
  cali.WriteJson("cali-ts", "small", "big");
  cali.WriteTensors(testing::CaliTsTensors(6, 4));
  auto library = PolicyLibrary::Load({{"disco", disco.path()},
                                      {"optimal-static", gamma.path()},
                                      {"cali-ts", cali.path()}},
                                     SmallDraft());
  ASSERT_TRUE(library.ok()) << library.status();
  speculation::PolicyInputs inputs;
  inputs.has_target_hidden = true;
  inputs.hidden_size = 4;
  for (const char* text : {"disco", "optimal-static"}) {
    EXPECT_TRUE(library->Make(Parse(text), inputs, "big").ok());
    const auto made = library->Make(Parse(text), inputs, "bigger");
    EXPECT_EQ(made.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(made.status().message()),
                HasSubstr("fingerprint big, this session's has bigger"));
  }
  EXPECT_TRUE(
      library->Make(Parse("optimal-static:gamma=2"), inputs, "bigger").ok());
  EXPECT_THAT(library->Make(Parse("cali-ts"), inputs, "big")->note, IsEmpty());
  EXPECT_THAT(library->Make(Parse("cali-ts"), inputs, "bigger")->note,
              HasSubstr("no file"));
}

// Its parameters stand where the request names none; those of another pair
// never.
TEST(PolicyLibrary, SvipTakesItsParametersFromAFile) {
  testing::PolicyFolder folder;
  folder.WriteJson("svip", "small", "big",
                   {{"parameters", {{"h", 100}, {"max", 2}}}});
  auto library = PolicyLibrary::Load({{"svip", folder.path()}}, SmallDraft());
  ASSERT_TRUE(library.ok()) << library.status();
  // Where H is 2 nats, sqrt(0.15 H) is 0.55: over the table's h.
  const auto chunk = [&](const char* text, const char* target) {
    const auto made = library->Make(Parse(text), {}, target);
    EXPECT_TRUE(made.ok()) << made.status();
    speculation::DraftRow row;
    row.entropy = 2.0f;
    int length = 1;
    while (made->length->Decide(row) ==
           speculation::LengthDecision::kContinue) {
      ++length;
    }
    return length;
  };
  EXPECT_EQ(chunk("svip", "big"), 2);
  EXPECT_EQ(chunk("svip", ""), 2);
  EXPECT_EQ(chunk("svip:max=5", "big"), 5);
  EXPECT_EQ(chunk("svip:h=0.3", "big"), 1);
  EXPECT_EQ(chunk("svip", "bigger"), 1);
  EXPECT_THAT(library->Make(Parse("svip"), {}, "big")->note, IsEmpty());
  EXPECT_THAT(library->Make(Parse("svip"), {}, "bigger")->note,
              HasSubstr("another target"));
}

TEST(PolicyLibrary, CaliTsSaysWhatItGoesWithout) {
  PolicyLibrary library;
  EXPECT_THAT(library.Make(Parse("cali-ts"), {})->note,
              HasSubstr("no model score"));
  EXPECT_THAT(library.Make(Parse("svip"), {})->note, IsEmpty());
  speculation::PolicyInputs inputs;
  inputs.has_target_hidden = true;
  inputs.hidden_size = 4;
  EXPECT_THAT(library.Make(Parse("cali-ts"), inputs)->note,
              HasSubstr("no file"));
  testing::PolicyFolder folder;
  folder.WriteJson("cali-ts", "small", "big");
  folder.WriteTensors(testing::CaliTsTensors(6, 4));
  auto loaded = PolicyLibrary::Load({{"cali-ts", folder.path()}}, SmallDraft());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->Make(Parse("cali-ts"), inputs)->note, IsEmpty());
}

}  // namespace
}  // namespace nacre::draft_worker
