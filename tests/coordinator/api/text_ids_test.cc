#include "coordinator/api/text_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/coordinator/byte_tokenizer.h"

namespace nacre::coordinator {
namespace {

// One token a byte; counts what is asked of it.
class CountingTokenizer final : public tokenizer::Tokenizer {
 public:
  explicit CountingTokenizer(size_t longest) {
    vocabulary_ = tokenizer::Vocabulary({"a", std::string(longest, 'b')});
  }
  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text, tokenizer::EncodeOptions options) const override {
    ++num_encoded;
    most = options.max_ids;
    if (text.size() > options.max_ids) {
      return absl::OutOfRangeError("more than it may");
    }
    return std::vector<int32_t>(text.size());
  }
  std::unique_ptr<tokenizer::IncrementalDecoder> NewDecoder(
      bool) const override {
    return nullptr;
  }

  mutable int num_encoded = 0;
  mutable size_t most = 0;
};

void ExpectInvalid(const absl::Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), message);
}

TEST(TextIdsTest, ATextFarOverTheContextIsNotTokenized) {
  const CountingTokenizer tokenizer(/*longest=*/10);
  constexpr int kMost = 101 * 10 * 4;
  const std::string message =
      "CONTEXT_LENGTH_EXCEEDED: the text has 4041 bytes; at most 4040 may fit "
      "the context of 101 tokens";
  ExpectInvalid(
      PromptTextIds(std::string(kMost + 1, 'x'), tokenizer, 101).status(),
      message);
  ExpectInvalid(
      AnswerIds(std::string(kMost + 1, 'x'), true, tokenizer, 101).status(),
      message);
  EXPECT_EQ(tokenizer.num_encoded, 0);
}

// The context is wide, as those of today are: no text is too long by its bytes.
TEST(TextIdsTest, TokenizingAPromptEndsWhereTheContextDoes) {
  const CountingTokenizer tokenizer(/*longest=*/100);
  EXPECT_EQ(PromptTextIds(std::string(101, 'x'), tokenizer, 101)->size(), 101u);
  EXPECT_EQ(tokenizer.most, 101u);
  ExpectInvalid(
      PromptTextIds(std::string(102, 'x'), tokenizer, 101).status(),
      "CONTEXT_LENGTH_EXCEEDED: the prompt has more than 101 tokens, the "
      "context is 101 and must hold at least one more");
}

TEST(TextIdsTest, AnAnswerFillsTheContextAtMost) {
  const CountingTokenizer tokenizer(/*longest=*/100);
  EXPECT_EQ(AnswerIds(std::string(101, 'x'), true, tokenizer, 101)->size(),
            101u);
  ExpectInvalid(
      AnswerIds(std::string(102, 'x'), true, tokenizer, 101).status(),
      "CONTEXT_LENGTH_EXCEEDED: the text of 102 bytes has more than 101 "
      "tokens, the context is 101");
}

TEST(TextIdsTest, WithoutAContextAnAnswerHasALimitToo) {
  const CountingTokenizer tokenizer(/*longest=*/100);
  const std::string text(kMaxAnswerIds + 1, 'x');
  const std::string message =
      "the text of 1048577 bytes has more than 1048576 tokens, an answer has "
      "at most 1048576 ids";
  ExpectInvalid(AnswerIds(text, true, tokenizer, absl::nullopt).status(),
                message);
  // Nor does a wider context make it longer.
  ExpectInvalid(AnswerIds(text, true, tokenizer, 10'000'000).status(), message);
  EXPECT_EQ(AnswerIds(text.substr(1), true, tokenizer, absl::nullopt)->size(),
            size_t{kMaxAnswerIds});
}

TEST(TextIdsTest, SpecialTokensAndOtherErrorsAreTheTokenizers) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(AnswerIds("ab", true, tokenizer, absl::nullopt)->size(), 3u);
  EXPECT_EQ(AnswerIds("ab", false, tokenizer, absl::nullopt)->size(), 2u);
  ExpectInvalid(PromptTextIds("a\x01", tokenizer, 101).status(),
                "byte 1 is not text");
}

TEST(TextIdsTest, ATextOfTheMostBytesIsTokenized) {
  const CountingTokenizer tokenizer(/*longest=*/10);
  constexpr int kMost = 101 * 10 * 4;
  ExpectInvalid(
      PromptTextIds(std::string(kMost, 'x'), tokenizer, 101).status(),
      "CONTEXT_LENGTH_EXCEEDED: the prompt has more than 101 tokens, the "
      "context is 101 and must hold at least one more");
  EXPECT_EQ(tokenizer.num_encoded, 1);
}

}  // namespace
}  // namespace nacre::coordinator
