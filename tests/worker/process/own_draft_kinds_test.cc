#include "worker/process/own_draft_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backend_factory.h"
#include "kernels/dtype.h"
#include "model/draft_files.h"
#include "model/eagle_projection.h"
#include "model/kv_budget.h"
#include "model/load_model.h"
#include "tests/worker/damaged_draft.h"
#include "worker/process/options.h"

namespace nacre::worker {
namespace {

using ::testing::HasSubstr;

TEST(OwnDraftKindsTest, EachHasItsFlag) {
  EXPECT_GE(OwnDraftKinds().size(), 3u);
  for (const OwnDraftKind& kind : OwnDraftKinds()) {
    OwnDraftFlags own;
    FlagSet flags("nacre-x", "does x");
    own.Register(&flags);
    EXPECT_EQ(own.kind(), nullptr);
    ASSERT_TRUE(
        flags.Parse({absl::StrCat("--", kind.flag, "=d")}, nullptr).ok());
    EXPECT_EQ(own.kind(), &kind);
    EXPECT_EQ(own.path(), "d");
    EXPECT_TRUE(own.Validate().ok()) << own.Validate();
  }
}

TEST(OwnDraftKindsTest, AnyTwoExcludeEachOther) {
  for (size_t i = 0; i < OwnDraftKinds().size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      OwnDraftFlags own;
      own.paths[i] = own.paths[k] = "d";
      EXPECT_THAT(std::string(own.Validate().message()),
                  HasSubstr(absl::StrCat("--", OwnDraftKinds()[i].flag)));
    }
  }
}

// Of a kind a folder of the bundled target's draft, by its flag.
std::string BundledDraft(const OwnDraftKind& kind) {
  return absl::StrCat(NACRE_MODELS, "/", kind.flag);
}

// Of a device each takes at least its file; what keeps keys and values takes
// more of each token with wider ones.
TEST(OwnDraftKindsTest, EachSaysWhatItNeedsBeforeItIsLoaded) {
  const std::string target = absl::StrCat(NACRE_MODELS, "/target");
  for (const OwnDraftKind& kind : OwnDraftKinds()) {
    SCOPED_TRACE(kind.flag);
    const auto needs = [&](kernels::DType kv_type) {
      return kind.needs(BundledDraft(kind), target, kv_type, /*step_rows=*/8);
    };
    const model::DraftNeeds narrow = needs(kernels::DType::kBF16);
    const model::DraftNeeds wide = needs(kernels::DType::kF32);
    const auto file =
        model::OpenDraftTensors(BundledDraft(kind), "medusa_lm_head");
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_GT(narrow.bytes, model::MostWeightBytes(**file));
    EXPECT_EQ(wide.per_token, 2 * narrow.per_token);
    EXPECT_EQ(narrow.per_token > 0, kind.kind != model::DraftKind::kMedusa);
    const model::DraftNeeds none =
        kind.needs("no/such/draft", target, kernels::DType::kF32, 8);
    EXPECT_EQ(none.bytes + none.per_token, 0);
  }
}

// The bundled target.
class LoadOwnDraftTest : public ::testing::Test {
 protected:
  LoadOwnDraftTest() {
    kernels::BackendOptions options;
    options.kind = "cpu";
    backend_ = *kernels::CreateBackend(options);
    auto model = model::LoadModel(absl::StrCat(NACRE_MODELS, "/target"),
                                  backend_.get(), {.kv_cache_bytes = 1 << 20});
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  static void ExpectNoNumbers(const absl::Status& status,
                              const std::string& folder) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::AllOf(::testing::StartsWith(folder + ": "),
                                 HasSubstr("no numbers"),
                                 HasSubstr("the weights are damaged")));
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<model::LanguageModel> model_;
};

TEST_F(LoadOwnDraftTest, LoadsWhatGivesNumbers) {
  for (const OwnDraftKind& kind : OwnDraftKinds()) {
    const auto draft = kind.load(BundledDraft(kind), model_.get());
    EXPECT_TRUE(draft.ok()) << draft.status();
  }
}

TEST_F(LoadOwnDraftTest, SaysWhatIsInAnothersPlaceAndWhichFlagTakesIt) {
  for (const OwnDraftKind& flag : OwnDraftKinds()) {
    for (const OwnDraftKind& given : OwnDraftKinds()) {
      if (&flag == &given) continue;
      const std::string folder = BundledDraft(given);
      const absl::Status status =
          LoadOwnDraft(flag, folder, model_.get()).status();
      EXPECT_THAT(std::string(status.message()),
                  ::testing::StartsWith(
                      absl::StrCat(folder, ": ", given.name, ", which --",
                                   given.flag, " of a target worker takes; --",
                                   flag.flag, " takes ", flag.name, " (")));
    }
    EXPECT_THAT(
        std::string(LoadOwnDraft(flag, NACRE_MODELS "/draft", model_.get())
                        .status()
                        .message()),
        HasSubstr("/draft: a model, which --model of a draft worker "
                  "takes; --"));
    // Of its own kind it is as the loader says.
    const absl::Status none =
        LoadOwnDraft(flag, "/no/such/draft", model_.get()).status();
    EXPECT_EQ(none, flag.load("/no/such/draft", model_.get()).status());
    EXPECT_TRUE(absl::IsNotFound(none)) << none;
  }
}

TEST_F(LoadOwnDraftTest, RefusesWhatGivesNone) {
  const std::map<std::string, std::vector<std::string>> ends = {
      {"medusa", {"0.0.linear.weight", "1.0.linear.weight"}},
      {"eagle", {"fc.weight", "down_proj.weight", "lm_head.weight"}},
      {"glide",
       {"cross_attn.q_proj.weight", "cross_attn.o_proj.weight",
        "down_proj.weight", "lm_head.weight"}}};
  for (const OwnDraftKind& kind : OwnDraftKinds()) {
    for (const std::string& end : ends.at(kind.flag)) {
      SCOPED_TRACE(absl::StrCat(kind.flag, " ", end));
      ForEachDamage(BundledDraft(kind), end, [&](const std::string& folder) {
        ExpectNoNumbers(kind.load(folder, model_.get()).status(), folder);
      });
    }
  }
}

TEST_F(LoadOwnDraftTest, RefusesFeaturesThatAreNoNumbers) {
  const std::string eagle = absl::StrCat(NACRE_MODELS, "/eagle");
  EXPECT_TRUE(model::EagleProjection::Load(eagle, model_.get()).ok());
  ForEachDamage(eagle, "fc.weight", [&](const std::string& folder) {
    ExpectNoNumbers(model::EagleProjection::Load(folder, model_.get()).status(),
                    folder);
  });
}

}  // namespace
}  // namespace nacre::worker
