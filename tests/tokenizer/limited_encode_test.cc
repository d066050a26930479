// Encoding up to a limit: the same ids as without one, or an early end.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "tests/tokenizer/goldens.h"
#include "tokenizer/hugging_face_tokenizer.h"
#include "tokenizer/piece_cover.h"
#include "tokenizer/sentencepiece_tokenizer.h"

namespace nacre::tokenizer {
namespace {

using ::nlohmann::json;

struct Named {
  std::string name;
  std::unique_ptr<Tokenizer> tokenizer;
};

// Every tokenizer of tests/data, and the bundled one.
std::vector<Named> AllTokenizers() {
  std::vector<Named> all;
  all.push_back({"bundled", LoadBundled()});
  for (const char* name :
       {"llama2", "llama3", "qwen2", "gpt_neox", "starcoder2"}) {
    all.push_back({name, *ParseHuggingFaceTokenizer(
                             ReadTestFile(absl::StrCat(name, ".json")))});
  }
  for (const char* name : {"spm_rules", "spm_suffix"}) {
    all.push_back({name, *ParseSentencePieceTokenizer(
                             ReadTestFile(absl::StrCat(name, ".model")))});
  }
  const json data = json::parse(ReadTestFile("components.json"));
  for (const json& variant : data["variants"]) {
    json file = data["base"];
    for (const auto& [key, value] : variant["patch"].items()) {
      if (key == "model") {
        file["model"].update(value);
      } else {
        file[key] = value;
      }
    }
    all.push_back({variant["name"].get<std::string>(),
                   *ParseHuggingFaceTokenizer(file.dump())});
  }
  return all;
}

class RandomTexts {
 public:
  std::string Next() {
    static const std::vector<std::string> kParts = {
        "a",   "b",   "ab", "aaaa", " ",          "  ",      "1",
        "12",  "\n",  "é",  "中",   "\U0001F600", "e\u0301", "the",
        " he", "ing", ".",  "--",   "<s>",        "</s>",    "<|im_end|>",
        "ﬁ",   "▁",   "\t", "A",    "'ll",        "\u0130",  "Hello"};
    std::string text;
    const size_t size = random_() % 60;
    // Some texts are long runs of the same.
    const std::string run = kParts[random_() % kParts.size()];
    const bool mostly_run = random_() % 4 == 0;
    for (size_t i = 0; i < size; ++i) {
      text += mostly_run && random_() % 8 != 0
                  ? run
                  : kParts[random_() % kParts.size()];
    }
    return text;
  }
  size_t Below(size_t limit) { return random_() % limit; }

 private:
  std::mt19937 random_{7};
};

TEST(LimitedEncodeTest, ALimitEndsATextThatHasMoreAndChangesNoOther) {
  const std::vector<Named> tokenizers = AllTokenizers();
  ASSERT_GE(tokenizers.size(), 36u);
  RandomTexts texts;
  int refused = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string text = texts.Next();
    for (const auto& [name, tokenizer] : tokenizers) {
      for (const bool special : {true, false}) {
        EncodeOptions options{.add_special_tokens = special,
                              .parse_special_tokens = special};
        const auto ids = tokenizer->Encode(text, options);
        ASSERT_TRUE(ids.ok()) << name << ": " << text << ids.status();
        options.max_ids = ids->size();
        const auto same = tokenizer->Encode(text, options);
        ASSERT_TRUE(same.ok()) << name << ": " << text << same.status();
        ASSERT_EQ(*same, *ids) << name << ": " << text;
        if (ids->empty()) continue;
        for (const size_t most : {ids->size() - 1, texts.Below(ids->size())}) {
          options.max_ids = most;
          const absl::Status status = tokenizer->Encode(text, options).status();
          ASSERT_EQ(status.code(), absl::StatusCode::kOutOfRange)
              << name << ": " << text << status;
          ASSERT_EQ(status.message(),
                    absl::StrCat("the text has more than ", most, " tokens"));
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(refused, 7'000);
}

// One word of letters, many words, one word that no pattern cuts.
TEST(LimitedEncodeTest, ATextThatHasFarMoreIsRefused) {
  std::vector<Named> tokenizers = AllTokenizers();
  tokenizers.resize(4);  // the published shapes
  for (const Named& named : tokenizers) {
    for (const std::string part : {"a1", "a", "the "}) {
      std::string text;
      while (text.size() < 500'000) text += part;
      EXPECT_EQ(
          named.tokenizer->Encode(text, {.max_ids = 1000}).status().code(),
          absl::StatusCode::kOutOfRange)
          << named.name << " of " << part;
    }
  }
}

// By trying all covers.
size_t FewestPieces(absl::string_view text,
                    const std::vector<std::string>& pieces,
                    PieceCover::Unknown unknown) {
  std::vector<size_t> fewest(text.size() + 1, text.size() + 1);
  fewest[0] = 0;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    const std::string character(text.substr(begin, 1));
    const bool is_piece =
        std::find(pieces.begin(), pieces.end(), character) != pieces.end();
    const size_t cost =
        is_piece || unknown == PieceCover::Unknown::kTokenEach ? 1 : 0;
    fewest[begin + 1] = std::min(fewest[begin + 1], fewest[begin] + cost);
    for (const std::string& piece : pieces) {
      // A token that is shorter than a piece covers no more than that.
      for (size_t size = 1; size <= piece.size(); ++size) {
        if (text.substr(begin, piece.size()) != piece) break;
        fewest[begin + size] =
            std::min(fewest[begin + size], fewest[begin] + 1);
      }
    }
  }
  return fewest[text.size()];
}

TEST(PieceCoverTest, CountsTheFewestPieces) {
  std::mt19937 random(3);
  const auto letters = [&](size_t size) {
    std::string text;
    for (size_t i = 0; i < size; ++i) text += "abc"[random() % 3];
    return text;
  };
  for (int round = 0; round < 500; ++round) {
    const auto unknown = round % 2 == 0 ? PieceCover::Unknown::kTokenEach
                                        : PieceCover::Unknown::kFree;
    PieceCover cover(unknown);
    std::vector<std::string> pieces;
    for (size_t i = 0; i < 4; ++i) {
      pieces.push_back(letters(1 + random() % 4));
      cover.Add(pieces.back());
    }
    const std::string text = letters(random() % 24);
    const size_t fewest = FewestPieces(text, pieces, unknown);
    for (size_t most = 0; most < 24; ++most) {
      ASSERT_EQ(cover.NeedsMore(text, most), fewest > most)
          << text << " of " << testing::PrintToString(pieces) << ", " << most;
    }
  }
}

// Characters that become nothing let their neighbours merge.
TEST(LimitedEncodeTest, DroppedCharactersCoverNothing) {
  const auto tokenizer = *ParseHuggingFaceTokenizer(R"({
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2},
              "merges": ["a b"]}})");
  EXPECT_THAT(*tokenizer->Encode("a--b", {.max_ids = 1}),
              testing::ElementsAre(2));
  EXPECT_EQ(tokenizer->Encode("a--b-a", {.max_ids = 1}).status().code(),
            absl::StatusCode::kOutOfRange);
}

// Such a token stands for another text than its piece.
TEST(LimitedEncodeTest, MergedBytesAreStillOneToken) {
  json file = json::parse(R"({
    "model": {"type": "BPE", "byte_fallback": true, "vocab": {"a": 0},
              "merges": []}})");
  json& model = file["model"];
  for (int byte = 0; byte < 256; ++byte) {
    const std::string hex =
        absl::StrCat("<0x", absl::Hex(byte, absl::kZeroPad2), ">");
    std::string upper = hex;
    for (size_t i = 3; i < 5; ++i) upper[i] = std::toupper(upper[i]);
    model["vocab"][upper] = 1 + byte;
  }
  // U+00E9 twice.
  model["vocab"]["<0xC3><0xA9>"] = 257;
  model["vocab"]["<0xC3><0xA9><0xC3><0xA9>"] = 258;
  model["merges"] = json::parse(
      R"([["<0xC3>", "<0xA9>"], ["<0xC3><0xA9>", "<0xC3><0xA9>"]])");
  const auto tokenizer = *ParseHuggingFaceTokenizer(file.dump());
  EXPECT_THAT(*tokenizer->Encode("\u00E9\u00E9", {.max_ids = 1}),
              testing::ElementsAre(258));
}

}  // namespace
}  // namespace nacre::tokenizer
