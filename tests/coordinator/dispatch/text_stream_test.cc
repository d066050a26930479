#include "coordinator/dispatch/text_stream.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/coordinator/byte_tokenizer.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;

class TextStreamTest : public ::testing::Test {
 protected:
  TextStream& stream() {
    if (stream_ == nullptr) {
      request_.prompt_ids = Bytes("ab");
      stream_ = std::make_unique<TextStream>(
          std::make_shared<const RequestSpec>(request_), &tokenizer_);
    }
    return *stream_;
  }
  std::string Say(const std::string& text,
                  FinishReason finish = FinishReason::kNone) {
    return stream().Append(Bytes(text), finish).text;
  }

  const ByteTokenizer tokenizer_;
  RequestSpec request_;
  std::unique_ptr<TextStream> stream_;
};

TEST_F(TextStreamTest, PiecesFollowEachOther) {
  TextStream::Piece piece = stream().Append(Bytes("he"), FinishReason::kNone);
  EXPECT_EQ(piece.first_index, 0);
  EXPECT_EQ(piece.token_ids, Bytes("he"));
  EXPECT_EQ(piece.text, "he");
  piece = stream().Append(Bytes("y"), FinishReason::kLength);
  EXPECT_EQ(piece.first_index, 2);
  EXPECT_EQ(stream().text(), "hey");
  EXPECT_EQ(stream().token_ids(), Bytes("hey"));
  EXPECT_EQ(stream().finish(), Finish::kLength);
  EXPECT_EQ(stream().stop_match(), "");
}

// Of a long prompt the end, not the beginning, is what the answer follows.
TEST_F(TextStreamTest, TheEndOfThePromptDecidesHowTheAnswerBegins) {
  request_.prompt_ids = Bytes(std::string(100, 'a') + "\xC3");
  TextStream stream(std::make_shared<const RequestSpec>(request_), &tokenizer_);
  EXPECT_EQ(stream.Append(Bytes("\xA9!"), FinishReason::kNone).text,
            "\xC3\xA9!");
}

TEST_F(TextStreamTest, WhatMayBeginAStopStringIsHeldBack) {
  request_.stop = {"END"};
  EXPECT_EQ(Say("one E"), "one ");
  EXPECT_EQ(Say("N"), "");
  EXPECT_EQ(Say("x"), "ENx");
  EXPECT_FALSE(stream().finish().has_value());
  EXPECT_EQ(Say("EN", FinishReason::kLength), "EN");  // there was no more
  EXPECT_EQ(stream().text(), "one ENxEN");
}

TEST_F(TextStreamTest, AStopStringEndsTextAndTokens) {
  request_.stop = {"END"};
  Say("one E");
  const TextStream::Piece piece =
      stream().Append(Bytes("ND and more"), FinishReason::kLength);
  EXPECT_EQ(piece.token_ids, Bytes("ND"));
  EXPECT_EQ(piece.text, "");
  EXPECT_EQ(stream().finish(), Finish::kStop);
  EXPECT_EQ(stream().stop_match(), "END");
  EXPECT_EQ(stream().text(), "one ");
}

TEST_F(TextStreamTest, AStopStringIsShownOnDemand) {
  request_.stop = {"END"};
  request_.include_stop_string = true;
  EXPECT_EQ(Say("one END two"), "one END");
}

TEST_F(TextStreamTest, BeforeMinTokensNoStopStringCounts) {
  request_.stop = {"x"};
  request_.min_tokens = 2;
  EXPECT_EQ(Say("ax"), "ax");
  EXPECT_FALSE(stream().finish().has_value());
  EXPECT_EQ(Say("bx"), "b");
  EXPECT_EQ(stream().finish(), Finish::kStop);
}

// The token that ends the text is no part of it, unless that was asked for.
TEST_F(TextStreamTest, TheTokenThatEndsTheTextIsSilent) {
  EXPECT_EQ(Say("hey", FinishReason::kEos), "he");
  EXPECT_EQ(stream().token_ids(), Bytes("hey"));
  EXPECT_EQ(stream().finish(), Finish::kEos);

  stream_ = nullptr;
  request_.include_stop_string = true;
  EXPECT_EQ(Say("hey", FinishReason::kStop), "hey");
  EXPECT_EQ(stream().finish(), Finish::kStop);
}

// Wherever an answer is cut, the text after the cut is what was not shown
// before it.
TEST_F(TextStreamTest, ResumedTextGoesOnWhereItWasCut) {
  request_.stop = {"END", "Xtra"};
  request_.min_tokens = 4;
  const std::string said = "ENDx caf\xC3\xA9 EXEN\xE2\x82\xAC end ENEND";
  for (size_t cut = 0; cut < said.size(); ++cut) {
    stream_ = nullptr;
    request_.resume = nullptr;
    std::string shown = Say(said.substr(0, cut));
    std::string expected = shown + Say(said.substr(cut));
    const std::string all = stream().text();
    EXPECT_EQ(all, expected);
    EXPECT_EQ(stream().finish(), Finish::kStop);

    stream_ = nullptr;
    request_.resume = std::make_shared<const std::vector<ResumedChoice>>(
        1, ResumedChoice{Bytes(said.substr(0, cut))});
    stream().Resume();
    EXPECT_EQ(stream().text(), shown) << cut;
    const TextStream::Piece piece =
        stream().Append(Bytes(said.substr(cut)), FinishReason::kNone);
    EXPECT_EQ(piece.first_index, static_cast<int>(cut));
    EXPECT_EQ(piece.token_ids, Bytes(said.substr(cut)));
    EXPECT_EQ(shown + piece.text, all) << cut;
    EXPECT_EQ(stream().text(), all) << cut;
    EXPECT_EQ(stream().token_ids(), Bytes(said));
    EXPECT_EQ(stream().finish(), Finish::kStop);
    EXPECT_EQ(stream().stop_match(), "END");
  }
}

}  // namespace
}  // namespace nacre::coordinator
