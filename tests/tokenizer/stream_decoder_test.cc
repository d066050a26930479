#include "tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/tokenizer/goldens.h"
#include "tokenizer/hugging_face_tokenizer.h"

namespace nacre::tokenizer {
namespace {

TEST(StreamDecoderTest, RandomIdsStreamToWhatDecodeGives) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(LoadBundled());
  for (const char* name : {"llama2.json", "llama3.json"}) {
    tokenizers.push_back(*ParseHuggingFaceTokenizer(ReadTestFile(name)));
  }
  std::mt19937 random(7);
  for (const auto& tokenizer : tokenizers) {
    for (int round = 0; round < 300; ++round) {
      // Ids one above and one below the vocabulary are passed over. Low ids are
      // mostly bytes, which seldom form valid characters.
      const int top = round % 2 == 0 ? 300 : tokenizer->vocab_size() + 1;
      std::vector<int32_t> ids(random() % 40);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % top) - 1;
      for (const bool skip : {false, true}) {
        ExpectStreams(*tokenizer, ids, skip, tokenizer->Decode(ids, skip));
      }
    }
  }
}

TEST(StreamDecoderTest, HoldsBackUnfinishedCharactersOnly) {
  const auto tokenizer = LoadBundled();
  ASSERT_NE(tokenizer, nullptr);
  const auto byte = [&](const std::string& piece) {
    return *tokenizer->PieceToId(piece);
  };
  StreamDecoder stream(tokenizer.get());
  EXPECT_EQ(stream.Append({byte("<0xF0>")}), "");
  EXPECT_EQ(stream.Append({byte("<0x9F>"), byte("<0x98>")}), "");
  EXPECT_EQ(stream.Append({byte("<0x80>")}), "\xF0\x9F\x98\x80");
  EXPECT_EQ(stream.Append({byte("<0xC3>")}), "");
  // A byte that cannot follow proves the one before invalid.
  EXPECT_EQ(stream.Append({byte("<0x41>")}),
            "\xEF\xBF\xBD"
            "A");
  EXPECT_EQ(stream.Append({byte("<0xE2>"), byte("<0x82>")}), "");
  EXPECT_EQ(stream.Flush(), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(StreamDecoderTest, ContextDecidesAboutTheLeadingSpace) {
  const auto tokenizer = LoadBundled();
  ASSERT_NE(tokenizer, nullptr);
  const EncodeOptions plain = {.add_special_tokens = false};
  const std::vector<int32_t> prompt = *tokenizer->Encode("He said");
  const std::vector<int32_t> answer = *tokenizer->Encode("there", plain);

  StreamDecoder alone(tokenizer.get());
  EXPECT_EQ(alone.Append(answer) + alone.Flush(), "there");
  StreamDecoder continued(tokenizer.get());
  continued.SkipContext(prompt);
  EXPECT_EQ(continued.Append(answer) + continued.Flush(), " there");
}

TEST(StreamDecoderTest, ByteFallbackRunIsHeldUntilItEnds) {
  const auto tokenizer =
      *ParseHuggingFaceTokenizer(ReadTestFile("llama2.json"));
  const auto id = [&](const std::string& piece) {
    return *tokenizer->PieceToId(piece);
  };
  StreamDecoder stream(tokenizer.get());
  EXPECT_EQ(stream.Append({id("<0xC3>"), id("<0xA9>")}), "");
  EXPECT_EQ(stream.Append({id("a")}),
            "\xC3\xA9"
            "a");
  // One bad byte spoils the run, as in `tokenizers`.
  EXPECT_EQ(stream.Append({id("<0xC3>"), id("<0xA9>"), id("<0xFF>")}), "");
  EXPECT_EQ(stream.Flush(), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

}  // namespace
}  // namespace nacre::tokenizer
