#include "gateway/served_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/gateway/gateway_fixture.h"

namespace nacre::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Model Model(const char* name, uint32_t context, uint64_t kv) {
  v1::Model model;
  model.set_name(name);
  model.set_fingerprint(name);
  model.set_context_length(context);
  model.set_kv_capacity_tokens(kv);
  return model;
}

Said Answers(v1::Model model) { return {std::move(model), false}; }
Said Away(v1::Model model) { return {std::move(model), true}; }
const Said kNeverAnswered = {std::nullopt, true};

TEST(ServedModelTest, NothingIsServedWhereNoneAnswers) {
  EXPECT_FALSE(ServedTogether({}).has_value());
  EXPECT_FALSE(ServedTogether({Said(), kNeverAnswered}).has_value());
  EXPECT_FALSE(ServedTogether({Away(Model("a", 100, 64))}).has_value());
}

TEST(ServedModelTest, NamesComeInTheOrderOfTheCoordinatorsEachOnce) {
  const auto served = ServedTogether(
      {kNeverAnswered, Answers(Model("b", 100, 64)), Answers(Model("a", 90, 0)),
       Answers(Model("b", 100, 32))});
  ASSERT_TRUE(served.has_value());
  EXPECT_THAT(served->names, ElementsAre("b", "a"));
  EXPECT_THAT(served->away_names, IsEmpty());
  EXPECT_EQ(served->model.name(), "b");
  EXPECT_EQ(served->model.fingerprint(), "b");
}

TEST(ServedModelTest, SizesAreTheLeastThatOneTells) {
  const auto served =
      ServedTogether({Answers(Model("a", 100, 0)), Answers(Model("a", 90, 64)),
                      Answers(Model("a", 0, 32))});
  ASSERT_TRUE(served.has_value());
  EXPECT_EQ(served->model.context_length(), 90u);
  EXPECT_EQ(served->model.kv_capacity_tokens(), 32u);
  EXPECT_EQ(
      ServedTogether({Answers(Model("a", 1, 0))})->model.kv_capacity_tokens(),
      0u);
}

// Its sizes bind none that answer, its name is known.
TEST(ServedModelTest, OneThatIsAwayLeavesItsNameAlone) {
  const auto served =
      ServedTogether({Away(Model("c", 10, 10)), Answers(Model("b", 100, 64)),
                      Away(Model("b", 10, 10)), Away(Model("a", 10, 10)),
                      kNeverAnswered, Away(Model("c", 10, 10))});
  ASSERT_TRUE(served.has_value());
  EXPECT_THAT(served->names, ElementsAre("b"));
  EXPECT_THAT(served->away_names, ElementsAre("c", "a"));
  EXPECT_EQ(served->model.name(), "b");
  EXPECT_EQ(served->model.context_length(), 100u);
  EXPECT_EQ(served->model.kv_capacity_tokens(), 64u);
}

class ServedNamesTest : public GatewayServiceTest {
 protected:
  // One coordinator for each name, which answers all requests.
  void StartGatewayWith(const std::vector<const char*>& names) {
    for (const char* name : names) {
      AddCoordinator([](auto*, const auto&, auto* writer) {
        writer->Write(FakeCoordinator::Complete("t", 0));
        return grpc::Status::OK;
      });
      coordinators_.back()->SetName(name);
    }
    StartGateway();
  }
  std::string Ask(const char* model) {
    return PostJson("/v1/completions",
                    absl::StrCat(R"({"prompt":"a","model":")", model, "\"}"));
  }
  // The answer once its status is that one.
  std::string AskUntil(const char* model, int status) {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    std::string answer;
    do {
      answer = Ask(model);
    } while (StatusOf(answer) != status && absl::Now() < deadline);
    return answer;
  }
};

TEST_F(ServedNamesTest, AreThoseOfAllCoordinators) {
  StartGatewayWith({"b", "a", "b"});
  const OrderedJson list =
      JsonOf(BodyOf(Get(server_->address(), "/v1/models")));
  std::vector<std::string> listed;
  for (const OrderedJson& model : list["data"]) {
    listed.push_back(model["id"].get<std::string>());
    EXPECT_EQ(model["root"], "b");
  }
  EXPECT_THAT(listed, ElementsAre("b", "a"));
  for (const char* name : {"a", "b"}) {
    EXPECT_THAT(Ask(name), HasSubstr(R"("model":"b")"));
  }
  EXPECT_THAT(Ask("c"), HasSubstr("model_not_found"));
}

// A name that was served, and will be: another try may find it.
TEST_F(ServedNamesTest, OneThatIsAwayIsNoUnknownName) {
  client_options_.poll_period = absl::Milliseconds(1);
  StartGatewayWith({"b", "a"});
  EXPECT_EQ(StatusOf(Ask("a")), 200);
  coordinators_[1]->Drain(1000000);
  const std::string answer = AskUntil("a", 503);
  EXPECT_THAT(answer, HasSubstr("Retry-After: 1\r\n"));
  const OrderedJson error = JsonOf(BodyOf(answer))["error"];
  EXPECT_EQ(error["code"], "no_target");
  EXPECT_EQ(error["message"],
            "model \"a\" is not served now: the coordinators that have it do "
            "not answer");
  EXPECT_EQ(StatusOf(Get(server_->address(), "/v1/models/a")), 503);
  EXPECT_EQ(StatusOf(Ask("b")), 200);
  EXPECT_EQ(StatusOf(Ask("c")), 404);
  // It is there again, and calls itself something else.
  coordinators_[1]->SetName("d");
  coordinators_[1]->Drain(0);
  EXPECT_EQ(StatusOf(AskUntil("d", 200)), 200);
  EXPECT_EQ(StatusOf(Ask("a")), 404);
}

// Where the gateway's own names hold, those of coordinators say nothing.
TEST_F(ServedNamesTest, TheGatewaysOwnNamesAreAlwaysThere) {
  options_.served_names = {"own"};
  client_options_.poll_period = absl::Milliseconds(1);
  StartGatewayWith({"b", "a"});
  coordinators_[1]->Drain(1000000);
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (client_->model()->away_names.empty()) {
    ASSERT_LT(absl::Now(), deadline);
    std::this_thread::yield();
  }
  EXPECT_EQ(StatusOf(Ask("own")), 200);
  EXPECT_EQ(StatusOf(Ask("a")), 404);
}

}  // namespace
}  // namespace nacre::gateway
