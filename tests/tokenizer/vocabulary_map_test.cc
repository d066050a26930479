#include "tokenizer/vocabulary_map.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/tiny_checkpoint.h"
#include "tests/tokenizer/goldens.h"
#include "tokenizer/tokenizer.h"

namespace nacre::tokenizer {
namespace {

using nacre::testing::TestFolder;
using nacre::testing::WriteFile;

constexpr EncodeOptions kPlain = {.add_special_tokens = false};

std::unique_ptr<Tokenizer> Load(const std::string& golden) {
  const std::string dir = TestFolder(golden);
  WriteFile(dir + "/tokenizer.json", ReadTestFile(golden + ".json"));
  return *LoadTokenizer(dir);
}

// With this token, if any, at the begin and the end of its texts.
std::unique_ptr<Tokenizer> LoadWith(const std::string& golden,
                                    const std::string& token) {
  const std::string dir = TestFolder(golden + "_with");
  WriteFile(dir + "/tokenizer.json", ReadTestFile(golden + ".json"));
  const std::string begin = token.empty() ? "<s>" : token;
  const std::string end = token.empty() ? "</s>" : token;
  WriteFile(
      dir + "/tokenizer_config.json",
      R"({"bos_token": ")" + begin + R"(", "eos_token": ")" + end + R"("})");
  return *LoadTokenizer(dir);
}

// What holds of every map.
void CheckMap(const VocabularyMap& map, const Tokenizer& target,
              const Tokenizer& draft) {
  ASSERT_EQ(map.fed.size(), static_cast<size_t>(target.vocab_size()));
  ASSERT_EQ(map.drawn.size(), map.fed.size());
  std::set<int32_t> drawn;
  for (size_t id = 0; id < map.fed.size(); ++id) {
    EXPECT_GE(map.fed[id], 0) << id;
    EXPECT_LT(map.fed[id], draft.vocab_size()) << id;
    if (map.drawn[id] == kNoId) continue;
    EXPECT_EQ(map.drawn[id], map.fed[id]) << id;
    EXPECT_LT(map.drawn[id], draft.vocab_size()) << id;
    EXPECT_TRUE(drawn.insert(map.drawn[id]).second)
        << map.drawn[id] << " is drawn for two ids";
  }
  EXPECT_GE(map.share, 0);
  EXPECT_LE(map.share, 1);
}

// The draft reads the target's text, where both have the pieces.
void ExpectReads(const VocabularyMap& map, const Tokenizer& target,
                 const Tokenizer& draft, const std::string& text) {
  const std::vector<int32_t> ids = *target.Encode(text, kPlain);
  std::vector<int32_t> fed;
  for (const int32_t id : ids) fed.push_back(map.fed[static_cast<size_t>(id)]);
  EXPECT_EQ(draft.Decode(fed), text);
}

TEST(VocabularyMapTest, AVocabularyIsItsOwn) {
  for (const char* golden : {"llama3", "qwen2", "llama2", "gpt_neox"}) {
    SCOPED_TRACE(golden);
    const auto tokenizer = Load(golden);
    EXPECT_TRUE(HaveCommonIds(*tokenizer, *tokenizer));
    const VocabularyMap map = MapVocabulary(*tokenizer, *tokenizer);
    CheckMap(map, *tokenizer, *tokenizer);
    EXPECT_EQ(map.share, 1);
    int others = 0;
    for (size_t id = 0; id < map.fed.size(); ++id) {
      others += map.fed[id] != static_cast<int32_t>(id) ? 1 : 0;
    }
    // Byte tokens of characters that have a piece, too; holes.
    EXPECT_LE(others, 256);
  }
}

TEST(VocabularyMapTest, TwoByteLevelVocabularies) {
  const auto target = Load("llama3");
  const auto draft = Load("qwen2");
  EXPECT_FALSE(HaveCommonIds(*target, *draft));
  const VocabularyMap map = MapVocabulary(*target, *draft);
  CheckMap(map, *target, *draft);
  EXPECT_GT(map.share, 0.3);
  EXPECT_LT(map.share, 1);
  int num_drawn = 0;
  for (int32_t id = 0; id < target->vocab_size(); ++id) {
    const int32_t drawn = map.drawn[static_cast<size_t>(id)];
    if (drawn == kNoId || target->IsSpecial(id)) continue;
    EXPECT_EQ(target->IdToPiece(id), draft->IdToPiece(drawn));
    ++num_drawn;
  }
  // Characters that are cut in two are there as well.
  EXPECT_GT(num_drawn, 256);
  ExpectReads(map, *target, *draft, "in the \xC3\xA4\xF0\x9F\x98\x80 to");
}

// "\u2581the" and "Ġthe" are both " the".
TEST(VocabularyMapTest, ASentencePieceVocabularyAndAByteLevelOne) {
  const auto sentence_piece = LoadBundled();
  const auto byte_level = Load("llama3");
  const VocabularyMap map = MapVocabulary(*byte_level, *sentence_piece);
  CheckMap(map, *byte_level, *sentence_piece);
  const auto id = byte_level->PieceToId("\xC4\xA0the");
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(sentence_piece->IdToPiece(map.drawn[static_cast<size_t>(*id)]),
            "\xE2\x96\x81the");
  const VocabularyMap back = MapVocabulary(*sentence_piece, *byte_level);
  CheckMap(back, *sentence_piece, *byte_level);
  const int32_t the = map.drawn[static_cast<size_t>(*id)];
  EXPECT_EQ(back.drawn[static_cast<size_t>(the)], *id);
  // A letter, which SentencePiece has as a byte, too, and would not draw so.
  const auto letter = byte_level->PieceToId("a");
  ASSERT_TRUE(letter.has_value());
  EXPECT_EQ(sentence_piece->IdToPiece(map.drawn[static_cast<size_t>(*letter)]),
            "a");
}

TEST(VocabularyMapTest, WhatADraftLacksItIsFedTheEndOf) {
  const auto target = Load("llama3");
  const auto draft = Load("qwen2");
  const VocabularyMap map = MapVocabulary(*target, *draft);
  int num_lacking = 0;
  for (int32_t id = 0; id < target->vocab_size(); ++id) {
    const std::string text = target->Decode({&id, 1});
    if (map.drawn[static_cast<size_t>(id)] != kNoId || target->IsSpecial(id) ||
        text.empty() || text.find("\xEF\xBF\xBD") != std::string::npos) {
      continue;
    }
    const std::vector<int32_t> spelled = *draft->Encode(text, kPlain);
    EXPECT_EQ(map.fed[static_cast<size_t>(id)], spelled.back()) << text;
    ++num_lacking;
  }
  EXPECT_GT(num_lacking, 10);
}

// Named differently, they mean the same.
TEST(VocabularyMapTest, TextsEndAlike) {
  const auto target = Load("llama2");
  const auto draft = Load("llama3");
  const VocabularyMap map = MapVocabulary(*target, *draft);
  ASSERT_TRUE(target->bos_id().has_value());
  if (draft->bos_id().has_value()) {
    EXPECT_EQ(map.fed[static_cast<size_t>(*target->bos_id())],
              *draft->bos_id());
  }
  if (target->eos_id().has_value() && draft->eos_id().has_value()) {
    EXPECT_EQ(map.drawn[static_cast<size_t>(*target->eos_id())],
              *draft->eos_id());
  }
}

// "<|endoftext|>" begins and ends the texts of GPT-NeoX.
TEST(VocabularyMapTest, ATokenThatDoesBothMayEndTheText) {
  const auto target = LoadWith("gpt_neox", "<|endoftext|>");
  const auto draft = LoadWith("llama2", "");
  ASSERT_TRUE(target->eos_id().has_value());
  ASSERT_EQ(target->bos_id(), target->eos_id());
  ASSERT_TRUE(draft->eos_id().has_value());
  ASSERT_NE(draft->bos_id(), draft->eos_id());
  const VocabularyMap map = MapVocabulary(*target, *draft);
  CheckMap(map, *target, *draft);
  EXPECT_EQ(map.drawn[static_cast<size_t>(*target->eos_id())],
            *draft->eos_id());
}

// The other way round: the draft's one token ends texts, and begins none.
TEST(VocabularyMapTest, OneTokenOfTheDraftStandsForOneOfTheTargets) {
  const auto target = LoadWith("llama2", "");
  const auto draft = LoadWith("gpt_neox", "<|endoftext|>");
  ASSERT_NE(target->bos_id(), target->eos_id());
  ASSERT_TRUE(draft->eos_id().has_value());
  ASSERT_EQ(draft->bos_id(), draft->eos_id());
  const VocabularyMap map = MapVocabulary(*target, *draft);
  CheckMap(map, *target, *draft);
  const auto bos = static_cast<size_t>(target->bos_id().value());
  const auto eos = static_cast<size_t>(target->eos_id().value());
  EXPECT_EQ(map.drawn[eos], *draft->eos_id());
  EXPECT_EQ(map.fed[bos], *draft->bos_id());
  EXPECT_EQ(map.drawn[bos], kNoId);
}

// The tokens of a tokenizer, and behind them these of a chat.
std::unique_ptr<Tokenizer> LoadForChats(const std::string& name) {
  const std::string dir = TestFolder("for_chats");
  WriteFile(dir + "/tokenizer.model", ReadTestFile(name));
  const int size = (*LoadTokenizer(dir))->vocab_size();
  WriteFile(dir + "/tokenizer_config.json",
            absl::StrCat(
                R"({"added_tokens_decoder": {")", size,
                R"(": {"content": "<|im_start|>", "special": true}, ")",
                size + 1, R"(": {"content": "<|im_end|>", "special": true}}, )",
                R"("eos_token": "<|im_end|>"})"));
  return *LoadTokenizer(dir);
}

// A piece and the byte of the same text have ids of their own.
TEST(VocabularyMapTest, TheIdsOfABeginningAreThemselves) {
  const auto target = LoadForChats("spm_gemma.model");
  const std::string dir = TestFolder("without_chats");
  WriteFile(dir + "/tokenizer.model", ReadTestFile("spm_gemma.model"));
  const auto draft = *LoadTokenizer(dir);
  ASSERT_EQ(target->vocab_size(), draft->vocab_size() + 2);
  EXPECT_TRUE(HaveCommonIds(*target, *draft));
  const VocabularyMap map = MapVocabulary(*target, *draft);
  CheckMap(map, *target, *draft);
  EXPECT_EQ(map.share, 1);
  for (int32_t id = 0; id < draft->vocab_size(); ++id) {
    EXPECT_EQ(map.fed[static_cast<size_t>(id)], id);
    EXPECT_EQ(map.drawn[static_cast<size_t>(id)], id);
  }
  EXPECT_EQ(map.drawn[map.drawn.size() - 2], kNoId);
  EXPECT_EQ(map.drawn.back(), kNoId);
  // The other way nothing is lacking.
  const VocabularyMap back = MapVocabulary(*draft, *target);
  CheckMap(back, *draft, *target);
  EXPECT_EQ(back.fed, back.drawn);
}

// A head may have more rows than there are pieces.
TEST(VocabularyMapTest, IdsWithoutAPieceAreFedAndNeverDrawn) {
  const auto target = Load("llama3");
  const auto draft = Load("qwen2");
  const int size = target->vocab_size() + 5;
  const VocabularyMap map = MapVocabulary(*target, *draft, size);
  ASSERT_EQ(map.fed.size(), static_cast<size_t>(size));
  ASSERT_EQ(map.drawn.size(), map.fed.size());
  for (size_t id = map.fed.size() - 5; id < map.fed.size(); ++id) {
    EXPECT_GE(map.fed[id], 0);
    EXPECT_LT(map.fed[id], draft->vocab_size());
    EXPECT_EQ(map.drawn[id], kNoId);
  }
  EXPECT_EQ(map.share, MapVocabulary(*target, *draft).share);
}

}  // namespace
}  // namespace nacre::tokenizer
