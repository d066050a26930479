// Models in several files: all parts are read, and any that does not belong is
// refused with its name.

#include "common/gguf/parts.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gguf_writer.h"

namespace nacre::gguf {
namespace {

using ::testing::HasSubstr;
using Writer = GgufWriter;

void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

Writer PartWriter(uint16_t number, uint16_t count, int32_t tensors) {
  Writer writer;
  writer.Pair("split.no", Writer::kU16, Writer::Raw(number))
      .Pair("split.count", Writer::kU16, Writer::Raw(count))
      .Pair("split.tensors.count", Writer::kI32, Writer::Raw(tensors));
  return writer;
}

// Three parts with the tensors a, none, and b and c.
std::vector<Writer> SampleParts() {
  std::vector<Writer> parts = {PartWriter(0, 3, 3), PartWriter(1, 3, 3),
                               PartWriter(2, 3, 3)};
  parts[0].String("name", "all").Tensor("a", 0, {1}, "1234");
  parts[2].Tensor("b", 0, {2}, "12345678").Tensor("c", 0, {1}, "abcd");
  return parts;
}

class GgufPartsTest : public ::testing::Test {
 protected:
  GgufPartsTest() {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  std::string Path(size_t number, size_t count = 3) const {
    return absl::StrFormat("%s/model-%05d-of-%05d.gguf", dir_, number, count);
  }
  void Write(const std::vector<Writer>& parts) const {
    for (size_t i = 0; i < parts.size(); ++i) {
      WriteBytes(Path(i + 1), parts[i].Bytes());
    }
  }
  // The first part with `parts` at hand is refused, of file `number`.
  void ExpectRefused(const std::vector<Writer>& parts, size_t number,
                     const std::string& message) const {
    Write(parts);
    EXPECT_EQ(File::Open(Path(1)).status(),
              absl::InvalidArgumentError(Path(number) + ": " + message));
  }

  const std::string dir_ = absl::StrCat(
      ::testing::TempDir(), "/gguf_parts_",
      ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(GgufPartsTest, AllPartsAreRead) {
  Write(SampleParts());
  const auto file = File::Open(Path(1));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->path(), Path(1));
  const Contents& contents = (*file)->contents();
  EXPECT_EQ(*contents.metadata.String("name"), "all");
  ASSERT_EQ(contents.tensors.size(), 3u);
  EXPECT_EQ(contents.tensors.at("a").bytes, "1234");
  EXPECT_EQ(contents.tensors.at("b").bytes, "12345678");
  EXPECT_EQ(contents.tensors.at("c").bytes, "abcd");
  for (const auto& [name, tensor] : contents.tensors) {
    const absl::string_view bytes = tensor.file->bytes();
    EXPECT_TRUE(tensor.bytes.begin() >= bytes.begin() &&
                tensor.bytes.end() <= bytes.end())
        << name;
  }
  EXPECT_EQ(contents.tensors.at("b").file, contents.tensors.at("c").file);
  EXPECT_NE(contents.tensors.at("a").file, contents.tensors.at("b").file);
}

TEST_F(GgufPartsTest, OneFileNeedsNoName) {
  const std::string path = dir_ + "/any";
  for (const uint16_t count : {0, 1}) {
    Writer writer;
    writer.Pair("split.count", Writer::kU16, Writer::Raw(count))
        .Tensor("a", 0, {1}, "1234");
    WriteBytes(path, writer.Bytes());
    const auto file = File::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->contents().tensors.size(), 1u);
  }
}

TEST_F(GgufPartsTest, AMissingPartIsNamed) {
  Write(SampleParts());
  std::filesystem::remove(Path(2));
  const absl::Status status = File::Open(Path(1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(Path(2) + ": part 2 of 3 is missing: "));
}

TEST_F(GgufPartsTest, TheFirstPartIsToBeNamed) {
  Write(SampleParts());
  EXPECT_EQ(File::Open(Path(3)).status(),
            absl::InvalidArgumentError(absl::StrCat(
                Path(3), ": it is part 3 of 3; name the first, ", Path(1))));
  // Part 1 by its name only.
  std::vector<Writer> parts = SampleParts();
  parts[0] = PartWriter(1, 3, 3);
  ExpectRefused(parts, 1,
                absl::StrCat("it is part 2 of 3; name the first, ", Path(1)));
  for (const char* name :
       {"model.gguf", "model-00001-of-00002.gguf", "-0001-of-00003.gguf",
        "model-00004-of-00003.gguf", "model-00000-of-00003.gguf",
        "model-+0001-of-00003.gguf"}) {
    const std::string path = absl::StrCat(dir_, "/", name);
    WriteBytes(path, SampleParts()[0].Bytes());
    EXPECT_EQ(File::Open(path).status(),
              absl::InvalidArgumentError(absl::StrCat(
                  path,
                  ": it is one of 3 parts, whose names must end in "
                  "-00001-of-00003.gguf to -00003-of-00003.gguf")));
  }
}

TEST_F(GgufPartsTest, PartsOfOthersAreRefused) {
  const std::string expected =
      ", expected part 2 of 3 with 3 tensors in all, as the first part says";
  std::vector<Writer> parts = SampleParts();
  parts[1] = PartWriter(2, 3, 3);
  ExpectRefused(parts, 2, "it is part 3 of 3 with 3 tensors in all" + expected);
  parts[1] = PartWriter(1, 4, 3);
  ExpectRefused(parts, 2, "it is part 2 of 4 with 3 tensors in all" + expected);
  parts[1] = PartWriter(1, 3, 2);
  ExpectRefused(parts, 2, "it is part 2 of 3 with 2 tensors in all" + expected);
  parts[1] = Writer();
  ExpectRefused(parts, 2, "it is part 1 of 1 with 0 tensors in all" + expected);
  parts = SampleParts();
  parts[1].Tensor("a", 0, {1}, "1234");
  ExpectRefused(parts, 2, "tensor \"a\" is in a part before this one, too");
  parts[1] = PartWriter(1, 3, 3);
  parts[1].Tensor("d", 0, {1}, "1234");
  ExpectRefused(parts, 1,
                "its 3 parts have 4 tensors, metadata split.tensors.count is "
                "3");
  parts = SampleParts();
  parts[1].magic = "GGML";
  ExpectRefused(parts, 2,
                "it begins with \"GGML\", not \"GGUF\": no GGUF file");
}

TEST_F(GgufPartsTest, NumbersAreChecked) {
  const auto error = [](const Writer& writer) {
    const std::string bytes = writer.Bytes();
    return ReadPartOf(Parse(bytes)->metadata).status();
  };
  EXPECT_EQ(error(PartWriter(3, 3, 1)),
            absl::InvalidArgumentError("metadata split.no is 3, expected less "
                                       "than split.count, which is 3"));
  EXPECT_EQ(error(Writer().U32("split.count", 100000)),
            absl::InvalidArgumentError(
                "metadata split.count is 100000, the limit is 99999"));
  EXPECT_EQ(error(Writer().U32("split.count", 2)),
            absl::NotFoundError("metadata split.no is missing"));
  EXPECT_EQ(error(Writer().U32("split.count", 2).U32("split.no", 0)),
            absl::NotFoundError("metadata split.tensors.count is missing"));
  EXPECT_EQ(error(PartWriter(0, 3, -1)),
            absl::InvalidArgumentError(
                "metadata split.tensors.count is -1, expected 0 or more"));
}

TEST_F(GgufPartsTest, PathsAreThoseBeside) {
  EXPECT_EQ(*PartPath("d/m-00002-of-00012.gguf", 11, 12),
            "d/m-00012-of-00012.gguf");
  EXPECT_FALSE(PartPath("", 0, 2).ok());
}

}  // namespace
}  // namespace nacre::gguf
