#include "model/pickle/pickle.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;
using Kind = PickleValue::Kind;

constexpr absl::string_view kGlobals[] = {"collections OrderedDict",
                                          "known call"};

absl::StatusOr<std::unique_ptr<Pickle>> ParsePickle(absl::string_view bytes) {
  return Pickle::Parse(bytes, kGlobals);
}

// Of a literal with zeros.
template <size_t kSize>
absl::string_view Bytes(const char (&text)[kSize]) {
  return {text, kSize - 1};
}

TEST(PickleTest, BuildsData) {
  const auto pickle =
      ParsePickle(Bytes("\x80\x02}q\x00(X\x01\x00\x00\x00"
                        "aK\x05X\x01\x00\x00\x00"
                        "bM\x01\x02us."));
  EXPECT_FALSE(pickle.ok());  // a last step without a value
  const auto dict =
      ParsePickle(Bytes("\x80\x02}q\x00(X\x01\x00\x00\x00"
                        "aK\x05X\x01\x00\x00\x00"
                        "bM\x01\x02u."));
  ASSERT_TRUE(dict.ok()) << dict.status();
  const PickleValue& root = (*dict)->root();
  ASSERT_EQ(root.kind, Kind::kDict);
  ASSERT_EQ(root.items.size(), 4u);
  EXPECT_EQ(root.items[0]->text, "a");
  EXPECT_EQ(root.items[1]->number, 5);
  EXPECT_EQ(root.items[3]->number, 0x201);
}

TEST(PickleTest, Numbers) {
  const auto pickle = ParsePickle(
      Bytes("(J\xFE\xFF\xFF\xFF\x8A\x00\x8A\x02\x00\x80\x8A\x05\x00\x00\x00"
            "\x00\x01\x88\x89NG\x00\x00\x00\x00\x00\x00\x00\x00t."));
  ASSERT_TRUE(pickle.ok()) << pickle.status();
  std::vector<int64_t> numbers;
  for (const PickleValue* item : (*pickle)->root().items) {
    numbers.push_back(item->number);
  }
  EXPECT_THAT(numbers, ::testing::ElementsAre(-2, 0, -32768, int64_t{1} << 32,
                                              1, 0, 0, 0));
  EXPECT_EQ((*pickle)->root().items[6]->kind, Kind::kOther);
}

TEST(PickleTest, NotesCallsAndRunsNone) {
  const auto pickle = ParsePickle(Bytes("cknown\ncall\n(K\x01K\x02tR."));
  ASSERT_TRUE(pickle.ok()) << pickle.status();
  const PickleValue& call = (*pickle)->root();
  ASSERT_EQ(call.kind, Kind::kCall);
  EXPECT_EQ(call.items[0]->text, "known call");
  EXPECT_EQ(call.items[1]->items.size(), 2u);
  const auto dict = ParsePickle(Bytes("ccollections\nOrderedDict\n)R}b."));
  ASSERT_TRUE(dict.ok()) << dict.status();
  EXPECT_EQ((*dict)->root().kind, Kind::kDict);
}

// Lists, tuples and names of later protocols; what was kept comes back.
TEST(PickleTest, LaterProtocols) {
  const auto good =
      ParsePickle(Bytes("\x80\x04\x95\0\0\0\0\0\0\0\0]\x94\x8C\x05known\x8C\x04"
                        "call\x93\x94"
                        "a(h\x01\x85h\x00j\x01\x00\x00\x00\x86"
                        "e."));
  ASSERT_TRUE(good.ok()) << good.status();
  const PickleValue& root = (*good)->root();
  ASSERT_EQ(root.items.size(), 3u);
  EXPECT_EQ(root.items[0]->kind, Kind::kGlobal);
  EXPECT_EQ(root.items[1]->items[0], root.items[0]);
  EXPECT_EQ(root.items[2]->items[0], &root);  // it holds itself
}

TEST(PickleTest, NamesWhatItDoesNotFollow) {
  const auto unknown = ParsePickle(Bytes("cposix\nsystem\n(tR."));
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(unknown.status().message()),
              HasSubstr("the pickle calls \"posix system\", and nothing of a "
                        "pickle is run"));
  EXPECT_THAT(std::string(ParsePickle(Bytes("i.")).status().message()),
              HasSubstr("the step 0x69, which builds no tensors"));
}

TEST(PickleTest, RefusesWhatIsMalformed) {
  const absl::string_view kBad[] = {
      "",
      ".",
      "t.",
      "(.",
      "K",
      "h\x05.",
      "Qb.",
      "]K\x01u.",
      "}(K\x01u.",
      "K\x01K\x01R.",
      "}a.",
      "X\xFF",
      "cknown\n",
      "\x8A\xFF",
      "(]e.",
      "]K\x01s",
      "(K\x01(.",
      "]q",
      Bytes("\x8D\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFx."),
      Bytes("\x8A\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00."),
      Bytes("K\x01\x8C\x04"
            "call\x93.")};
  for (const absl::string_view bytes : kBad) {
    const auto pickle = ParsePickle(bytes);
    EXPECT_EQ(pickle.status().code(), absl::StatusCode::kInvalidArgument)
        << bytes << pickle.status();
  }
}

// What would take all memory, or the stack of the thread that walks it.
TEST(PickleTest, BoundsWhatItBuilds) {
  EXPECT_FALSE(ParsePickle(std::string(1'200'000, '(')).ok());
  EXPECT_FALSE(ParsePickle(std::string(1'200'000, '}')).ok());
  std::string deep = ")";
  for (int i = 0; i < 2'200'000; ++i) deep += '\x85';
  EXPECT_THAT(std::string(ParsePickle(deep + ".").status().message()),
              HasSubstr("more than any file of tensors"));
  std::string many = "]q";
  many += '\0';
  for (int i = 0; i < 1'200'000; ++i) many += std::string("h\0", 2);
  EXPECT_FALSE(ParsePickle(many + ".").ok());
  // One value, kept again and again.
  const std::string kept = "]" + std::string(2'200'000, '\x94');
  EXPECT_THAT(std::string(ParsePickle(kept + ".").status().message()),
              HasSubstr("more than any file of tensors"));
}

}  // namespace
}  // namespace nacre::model
