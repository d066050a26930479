// A draft whose vocabulary is not the target's, through the real processes: the
// answers are ar's, and it drafts what the same draft does in the target's own
// ids.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/service_fixture.h"
#include "tests/testing/renumbered_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::integration {
namespace {

constexpr int kMaxTokens = 32;

class VocabularyServiceTest : public ::testing::Test {
 protected:
  static v1::GenerateRequest RequestAt(float temperature, v1::Method method) {
    v1::GenerateRequest request =
        Request("Question: A baker makes", method, kMaxTokens);
    request.mutable_sampling()->set_temperature(temperature);
    request.mutable_sampling()->set_seed(11);
    request.mutable_stop()->set_ignore_eos(true);
    request.mutable_speculation()->set_window(4);
    return request;
  }

  static v1::Complete Answer(Service& service,
                             const v1::GenerateRequest& request) {
    const auto complete = service.Generate(request);
    EXPECT_TRUE(complete.ok()) << complete.status();
    return complete.value_or(v1::Complete());
  }

  static std::vector<uint32_t> Tokens(const v1::Complete& complete) {
    return {complete.token_ids().begin(), complete.token_ids().end()};
  }

  // With a draft: a step without its tokens would be another one.
  static tools::Cluster::Options Options(
      const std::string& draft, const std::string& target = TargetModel()) {
    tools::Cluster::Options options = Service::Options(1, target, draft);
    options.more_args.target = {"--gate-timeouts=off"};
    return options;
  }

  // Of one that takes sessions.
  static double ShareOfDraft(Service& service) {
    EXPECT_TRUE(Service::Eventually([&service] {
      const std::vector<v1::WorkerInfo> workers = service.Workers();
      return workers.size() == 2 &&
             std::all_of(workers.begin(), workers.end(),
                         [](const v1::WorkerInfo& one) { return one.ready(); });
    }));
    for (const v1::WorkerInfo& worker : service.Workers()) {
      if (worker.hello().role() == v1::WORKER_ROLE_DRAFT) {
        return worker.hello().has_vocabulary_share()
                   ? worker.hello().vocabulary_share()
                   : 1;
      }
    }
    ADD_FAILURE() << "no draft";
    return 0;
  }
};

TEST_F(VocabularyServiceTest, ADraftOfOtherIdsDraftsAsItDidInItsOwn) {
  const std::string renumbered = testing::TestFolder("renumbered");
  testing::WriteRenumberedCheckpoint(DraftModel(), 0, renumbered);
  Service own(Options(DraftModel()));
  Service mapped(Options(renumbered));
  EXPECT_EQ(ShareOfDraft(own), 1);
  EXPECT_EQ(ShareOfDraft(mapped), 1);
  for (const float temperature : {0.0f, 1.0f}) {
    SCOPED_TRACE(temperature);
    const v1::GenerateRequest request = RequestAt(temperature, v1::METHOD_SD);
    const v1::Complete expected = Answer(own, request);
    const v1::Complete complete = Answer(mapped, request);
    EXPECT_EQ(Tokens(complete), Tokens(expected));
    EXPECT_GT(complete.speculation().accepted(), 0u);
    // In turns nothing depends on time.
    EXPECT_EQ(complete.speculation().rounds(), expected.speculation().rounds());
    EXPECT_EQ(complete.speculation().accepted(),
              expected.speculation().accepted());
  }
}

// A target that was made for chats, and the draft of the model before that.
TEST_F(VocabularyServiceTest, ADraftThatLacksTokensOfChatsDraftsForThem) {
  const std::string chats = testing::TestFolder("chats");
  testing::TinyCheckpoint shape;
  shape.vocab_size = 4098;
  testing::WriteTinyCheckpoint(shape, chats);
  std::filesystem::copy_file(TargetModel() + "/tokenizer.model",
                             chats + "/tokenizer.model");
  testing::WriteFile(chats + "/tokenizer_config.json",
                     R"({"added_tokens_decoder": {
                         "4096": {"content": "<|im_start|>", "special": true},
                         "4097": {"content": "<|im_end|>", "special": true}}})");
  Service service(Options(DraftModel(), chats));
  EXPECT_EQ(ShareOfDraft(service), 1);
  for (const float temperature : {0.0f, 1.0f}) {
    v1::GenerateRequest request = RequestAt(temperature, v1::METHOD_AR);
    for (const uint32_t id : {4096u, 300u, 71u, 4097u, 13u, 4096u}) {
      request.mutable_token_ids()->add_ids(id);
    }
    const std::vector<uint32_t> ar = Tokens(Answer(service, request));
    for (const v1::Method method :
         {v1::METHOD_SD, v1::METHOD_PEARL, v1::METHOD_ASYNC}) {
      SCOPED_TRACE(absl::StrCat(temperature, " ", v1::Method_Name(method)));
      request.mutable_speculation()->set_method(method);
      const v1::Complete complete = Answer(service, request);
      EXPECT_EQ(Tokens(complete), ar);
      EXPECT_EQ(complete.speculation().degraded_rounds(), 0u);
      // METHOD_ASYNC measures what a draft is worth. This one only guesses, so
      // the method may stop drafting.
      if (method == v1::METHOD_ASYNC) continue;
      EXPECT_GT(complete.speculation().drafted(), 0u);
    }
  }
}

TEST_F(VocabularyServiceTest, ChangesNoToken) {
  const std::string lacking = testing::TestFolder("lacking");
  constexpr int kRenamedEvery = 4;
  testing::WriteRenumberedCheckpoint(DraftModel(), kRenamedEvery, lacking);
  Service service(Options(lacking));
  EXPECT_NEAR(ShareOfDraft(service), 0.75, 0.03);
  for (const float temperature : {0.0f, 0.8f, 1.0f}) {
    const std::vector<uint32_t> ar =
        Tokens(Answer(service, RequestAt(temperature, v1::METHOD_AR)));
    EXPECT_EQ(ar.size(), static_cast<size_t>(kMaxTokens));
    for (const v1::Method method :
         {v1::METHOD_SD, v1::METHOD_PEARL, v1::METHOD_ASYNC}) {
      SCOPED_TRACE(absl::StrCat(temperature, " ", v1::Method_Name(method)));
      EXPECT_EQ(Tokens(Answer(service, RequestAt(temperature, method))), ar);
    }
  }
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

}  // namespace
}  // namespace nacre::integration
