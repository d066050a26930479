// Compares the bundled SentencePiece tokenizer with the programs spm_encode and
// spm_decode, where they are installed, on 10,000 random strings.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tokenizer/goldens.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

constexpr char kModel[] = NACRE_MODELS "/target/tokenizer.model";

// First and last code points of the alphabets that texts are drawn from.
constexpr char32_t kAlphabets[][2] = {
    {'a', 'z'},          {'A', 'Z'},         {'0', '9'},
    {' ', ' '},          {'\t', '\t'},       {'!', '/'},
    {':', '@'},          {'[', '`'},         {0x01, 0x08},
    {0x0E, 0x1F},        {0x7F, 0xA0},       {0xC0, 0xFF},
    {0x100, 0x24F},      {0x300, 0x36F},     {0x370, 0x3FF},
    {0x400, 0x4FF},      {0x530, 0x58F},     {0x590, 0x5FF},
    {0x600, 0x6FF},      {0x900, 0x97F},     {0xE00, 0xE7F},
    {0x10A0, 0x10FF},    {0x1100, 0x11FF},   {0x2000, 0x206F},
    {0x2190, 0x21FF},    {0x2200, 0x22FF},   {0x2581, 0x2581},
    {0x3000, 0x30FF},    {0x4E00, 0x9FFF},   {0xAC00, 0xD7A3},
    {0xE000, 0xE010},    {0xFB00, 0xFB4F},   {0xFF00, 0xFFEF},
    {0x1F300, 0x1F6FF},  {0x1F900, 0x1F9FF}, {0x20000, 0x2A6DF},
    {0x10FFF0, 0x10FFFF}};

std::string RandomText(std::mt19937& random,
                       const std::vector<std::string>& prose) {
  std::string text;
  const int parts = 1 + static_cast<int>(random() % 8);
  for (int part = 0; part < parts; ++part) {
    const uint32_t kind = random() % 8;
    if (kind == 0) {
      text.append(1 + random() % 20, ' ');
    } else if (kind < 4) {
      const std::string& line = prose[random() % prose.size()];
      const size_t begin = random() % (line.size() + 1);
      text += line.substr(begin, random() % 60);
    } else {
      const auto& range = kAlphabets[random() % std::size(kAlphabets)];
      for (int i = 1 + static_cast<int>(random() % 10); i > 0; --i) {
        AppendUtf8(range[0] + random() % (range[1] - range[0] + 1), &text);
      }
    }
  }
  // The programs read lines, and stop at NUL.
  std::string line;
  Utf8Assembler assembler(Utf8Assembler::Replacement::kPerByte);
  assembler.Append(text, &line);
  assembler.Finish(&line);
  for (char& c : line) {
    if (c == '\n' || c == '\r' || c == '\0') c = ' ';
  }
  return line;
}

std::vector<std::string> ReadLines(const std::string& path) {
  std::istringstream stream(ReadWholeFile(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void WriteLines(const std::string& path,
                const std::vector<std::string>& lines) {
  std::ofstream file(path, std::ios::binary);
  for (const std::string& line : lines) file << line << '\n';
}

bool RunCommand(const std::string& command) {
  return std::system(command.c_str()) == 0;
}

TEST(SentencePieceOracleTest, MatchesSpmEncodeAndSpmDecode) {
  if (!RunCommand("command -v spm_encode spm_decode > /dev/null 2>&1")) {
    GTEST_SKIP() << "spm_encode and spm_decode are not installed";
  }
  std::mt19937 random(20240607);
  const std::vector<std::string> prose =
      ReadLines(NACRE_TEST_DATA "/humaneval.jsonl");
  std::vector<std::string> texts;
  for (int i = 0; i < 10'000; ++i) texts.push_back(RandomText(random, prose));

  const std::string base =
      ::testing::TempDir() + "/nacre_spm_" + std::to_string(::getpid());
  WriteLines(base + ".txt", texts);
  const std::string model = std::string(" --model=") + kModel;
  ASSERT_TRUE(RunCommand("spm_encode --output_format=id" + model + " --input=" +
                         base + ".txt --output=" + base + ".ids 2> /dev/null"));
  const std::vector<std::string> expected = ReadLines(base + ".ids");
  ASSERT_EQ(expected.size(), texts.size());

  const auto tokenizer = LoadBundled();
  ASSERT_NE(tokenizer, nullptr);
  std::vector<std::vector<int32_t>> ids(texts.size());
  std::vector<std::string> decode_input;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto encoded = tokenizer->Encode(
        texts[i], {.add_special_tokens = false, .parse_special_tokens = false});
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    std::istringstream line(expected[i]);
    for (int32_t id; line >> id;) ids[i].push_back(id);
    ASSERT_EQ(*encoded, ids[i]) << "line " << i << ": " << texts[i];
    // Every third line decodes random ids; 13 and 16 are line ends.
    if (i % 3 == 0) {
      const uint32_t top = i % 2 == 0 ? 260 : 4096;
      for (int32_t& id : ids[i]) {
        id = static_cast<int32_t>(random() % top);
        if (id == 13 || id == 16 || id == 3) id = 14;
      }
    }
    std::string joined;
    for (const int32_t id : ids[i]) joined += std::to_string(id) + " ";
    decode_input.push_back(joined.substr(0, joined.size() - !joined.empty()));
  }
  WriteLines(base + ".in", decode_input);
  ASSERT_TRUE(RunCommand("spm_decode --input_format=id" + model + " --input=" +
                         base + ".in --output=" + base + ".out 2> /dev/null"));
  const std::vector<std::string> decoded = ReadLines(base + ".out");
  ASSERT_EQ(decoded.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSERT_EQ(tokenizer->Decode(ids[i]), decoded[i]) << "line " << i;
  }
  for (const char* suffix : {".txt", ".ids", ".in", ".out"}) {
    std::remove((base + suffix).c_str());
  }
}

}  // namespace
}  // namespace nacre::tokenizer
