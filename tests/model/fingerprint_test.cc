#include "model/fingerprint.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace nacre::model {
namespace {

constexpr size_t kChunk = size_t{4} << 20;

std::string Hash(const std::vector<FingerprintJob::Part>& parts,
                 int num_threads = 2) {
  return FingerprintJob("{}", parts, num_threads).Finish();
}

std::string Bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<char>(i * 2654435761u >> 24);
  }
  return bytes;
}

TEST(FingerprintTest, IsTheSameWithAnyNumberOfThreads) {
  const std::string a = Bytes(2 * kChunk + 17);
  const std::string b = Bytes(3);
  const std::vector<FingerprintJob::Part> parts = {
      {"a", "F32", "[1]", a}, {"b", "F32", "[3]", b}, {"c", "F32", "[0]", ""}};
  const std::string alone = Hash(parts, 0);
  EXPECT_EQ(alone.size(), 64u);
  for (const int threads : {1, 2, 7}) EXPECT_EQ(Hash(parts, threads), alone);
}

TEST(FingerprintTest, ChangesWithEachByteAroundTheChunks) {
  std::string bytes = Bytes(2 * kChunk);
  const auto hash = [&bytes] { return Hash({{"a", "F32", "[1]", bytes}}); };
  const std::string whole = hash();
  for (const size_t at :
       {size_t{0}, size_t{5000}, kChunk - 1, kChunk, 2 * kChunk - 1}) {
    bytes[at] ^= 4;
    EXPECT_NE(hash(), whole) << at;
    bytes[at] ^= 4;
  }
  EXPECT_EQ(hash(), whole);
  // Chunks in another order.
  bytes = bytes.substr(kChunk) + bytes.substr(0, kChunk);
  EXPECT_NE(hash(), whole);
}

TEST(FingerprintTest, FieldsDoNotRunIntoEachOther) {
  const std::string whole = Hash({{"a", "F32", "[2]", "12"}});
  EXPECT_NE(Hash({{"b", "F32", "[2]", "12"}}), whole);
  EXPECT_NE(Hash({{"a", "F16", "[2]", "12"}}), whole);
  EXPECT_NE(Hash({{"a", "F32", "[1]", "12"}}), whole);
  EXPECT_NE(Hash({{"aF", "32", "[2]", "12"}}), whole);
  EXPECT_NE(Hash({{"a", "F32", "[2]", "12"}, {"b", "F32", "[0]", ""}}), whole);
  EXPECT_NE(Hash({{"a", "F32", "[2]", "1"}, {"b", "F32", "[1]", "2"}}),
            Hash({{"a", "F32", "[2]", "12"}, {"b", "F32", "[1]", ""}}));
  EXPECT_NE(FingerprintJob("{ }", {{"a", "F32", "[2]", "12"}}, 0).Finish(),
            whole);
}

TEST(FingerprintTest, TellsHowFarItIs) {
  const std::string bytes = Bytes(3 * kChunk);
  std::vector<double> fractions;
  FingerprintJob({}, {{"a", "F32", "[1]", bytes}}, /*num_threads=*/0)
      .Finish([&fractions](absl::string_view stage, double fraction) {
        EXPECT_EQ(stage, "fingerprint");
        fractions.push_back(fraction);
      });
  EXPECT_EQ(fractions, (std::vector<double>{1.0 / 3, 2.0 / 3, 1.0}));
}

TEST(FingerprintTest, CanBeGivenUp) {
  const std::string bytes = Bytes(3 * kChunk);
  const FingerprintJob job("{}", {{"a", "F32", "[1]", bytes}}, 3);
}

}  // namespace
}  // namespace nacre::model
