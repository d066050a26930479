// The trained drafts of models/ through the real processes: each loads, drafts,
// and changes no token.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/service_fixture.h"

namespace nacre::integration {
namespace {

constexpr int kShippedTokens = 48;

struct Shipped {
  const char* name;  // folder
  enum { kModel, kEagle, kMedusa } kind;
};

class ShippedDraftsTest : public ::testing::TestWithParam<Shipped> {
 protected:
  static tools::Cluster::Options OptionsOf(const Shipped& draft) {
    const std::string folder = absl::StrCat(NACRE_MODELS, "/", draft.name);
    if (draft.kind == Shipped::kModel) {
      return Service::Options(1, TargetModel(), folder);
    }
    tools::Cluster::Options options = Service::Options(0);
    // Rows cost nothing, on a busy machine hardly any.
    options.workers.target_step_time = "1:60,64:60";
    options.workers.suffix_drafter = "off";
    (draft.kind == Shipped::kEagle ? options.workers.eagle
                                   : options.workers.medusa) = folder;
    return options;
  }
};

TEST_P(ShippedDraftsTest, ChangesNoToken) {
  Service service(OptionsOf(GetParam()));
  for (const float temperature : {0.0f, 0.8f, 1.0f}) {
    SCOPED_TRACE(temperature);
    v1::GenerateRequest request = Request("Question: A baker makes 12 loaves",
                                          v1::METHOD_AR, kShippedTokens);
    request.mutable_sampling()->set_temperature(temperature);
    request.mutable_sampling()->set_seed(11);
    request.mutable_stop()->set_ignore_eos(true);
    const auto ar = service.Generate(request);
    ASSERT_TRUE(ar.ok()) << ar.status();
    EXPECT_EQ(ar->token_ids_size(), kShippedTokens);
    request.mutable_speculation()->set_method(v1::METHOD_ASYNC);
    const auto drafted = service.Generate(request);
    ASSERT_TRUE(drafted.ok()) << drafted.status();
    const std::vector<int32_t> expected(ar->token_ids().begin(),
                                        ar->token_ids().end());
    EXPECT_EQ(std::vector<int32_t>(drafted->token_ids().begin(),
                                   drafted->token_ids().end()),
              expected);
    // How many of the draft's tokens come in time is a matter of the machine.
    RecordProperty(
        absl::StrCat("accepted_at_", temperature),
        std::to_string(drafted->speculation().accepted() +
                       drafted->speculation().suffix_accepted()));
  }
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Drafts, ShippedDraftsTest,
    ::testing::Values(Shipped{"draft-distilled", Shipped::kModel},
                      Shipped{"eesd", Shipped::kModel},
                      Shipped{"eagle3", Shipped::kEagle},
                      Shipped{"medusa", Shipped::kMedusa}),
    [](const auto& info) {
      std::string name = info.param.name;
      for (char& c : name) c = c == '-' ? '_' : c;
      return name;
    });

}  // namespace
}  // namespace nacre::integration
