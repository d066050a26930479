#include "gateway/served_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gateway/gateway_fixture.h"

namespace nacre::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Model Model(const char* name, uint32_t context, uint64_t kv) {
  v1::Model model;
  model.set_name(name);
  model.set_fingerprint(name);
  model.set_context_length(context);
  model.set_kv_capacity_tokens(kv);
  return model;
}

TEST(ServedModelTest, NothingIsServedWhereNoneAnswered) {
  EXPECT_FALSE(ServedTogether({}).has_value());
  EXPECT_FALSE(ServedTogether({std::nullopt, std::nullopt}).has_value());
}

TEST(ServedModelTest, NamesComeInTheOrderOfTheCoordinatorsEachOnce) {
  const auto served = ServedTogether({std::nullopt, Model("b", 100, 64),
                                      Model("a", 90, 0), Model("b", 100, 32)});
  ASSERT_TRUE(served.has_value());
  EXPECT_THAT(served->names, ElementsAre("b", "a"));
  EXPECT_EQ(served->model.name(), "b");
  EXPECT_EQ(served->model.fingerprint(), "b");
}

TEST(ServedModelTest, SizesAreTheLeastThatOneTells) {
  const auto served = ServedTogether(
      {Model("a", 100, 0), Model("a", 90, 64), Model("a", 0, 32)});
  ASSERT_TRUE(served.has_value());
  EXPECT_EQ(served->model.context_length(), 90u);
  EXPECT_EQ(served->model.kv_capacity_tokens(), 32u);
  EXPECT_EQ(ServedTogether({Model("a", 1, 0)})->model.kv_capacity_tokens(), 0u);
}

class ServedNamesTest : public GatewayServiceTest {};

TEST_F(ServedNamesTest, AreThoseOfAllCoordinators) {
  for (const char* name : {"b", "a", "b"}) {
    AddCoordinator([](auto*, const auto&, auto* writer) {
      writer->Write(FakeCoordinator::Complete("t", 0));
      return grpc::Status::OK;
    });
    coordinators_.back()->SetName(name);
  }
  StartGateway();
  const OrderedJson list =
      JsonOf(BodyOf(Get(server_->address(), "/v1/models")));
  std::vector<std::string> listed;
  for (const OrderedJson& model : list["data"]) {
    listed.push_back(model["id"].get<std::string>());
    EXPECT_EQ(model["root"], "b");
  }
  EXPECT_THAT(listed, ElementsAre("b", "a"));
  for (const char* name : {"a", "b"}) {
    EXPECT_THAT(
        PostJson("/v1/completions",
                 absl::StrCat(R"({"prompt":"a","model":")", name, "\"}")),
        HasSubstr(R"("model":"b")"));
  }
  EXPECT_THAT(PostJson("/v1/completions", R"({"prompt":"a","model":"c"})"),
              HasSubstr("model_not_found"));
}

}  // namespace
}  // namespace nacre::gateway
