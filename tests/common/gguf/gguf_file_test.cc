#include "common/gguf/gguf_file.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gguf_writer.h"

namespace nacre::gguf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Writer = GgufWriter;

void ExpectError(const std::string& bytes, absl::StatusCode code,
                 const std::string& message) {
  const absl::Status status = Parse(bytes).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
}

// A small file with something of everything.
GgufWriter Sample() {
  GgufWriter writer;
  writer.String("general.architecture", "llama")
      .U32("general.alignment", 64)
      .Bool("yes", true)
      .Pair("small", Writer::kI8, Writer::Raw<int8_t>(-3))
      .Pair("byte", Writer::kU8, Writer::Raw<uint8_t>(200))
      .Pair("short", Writer::kI16, Writer::Raw<int16_t>(300))
      .Pair("word", Writer::kU16, Writer::Raw<uint16_t>(65535))
      .Pair("int", Writer::kI32, Writer::Raw<int32_t>(70000))
      .Pair("long", Writer::kU64, Writer::Raw<uint64_t>(uint64_t{1} << 40))
      .Pair("wide", Writer::kI64, Writer::Raw<int64_t>(int64_t{1} << 41))
      .F32("float", 0.25f)
      .Pair("double", Writer::kF64, Writer::Raw(1e300))
      .Strings("texts", {"a", "", "ccc"})
      .Numbers<float>("floats", Writer::kF32, {1.5f, -2.0f})
      .Numbers<int32_t>("ints", Writer::kI32, {7, -8});
  writer.alignment = 64;
  writer.Tensor("a", 0, {2, 3}, std::string(24, 'x'));
  writer.Tensor("b", 8, {64}, std::string(68, 'y'));
  return writer;
}

TEST(GgufFileTest, ReadsEveryTypeOfValue) {
  for (const uint32_t version : {2, 3}) {
    GgufWriter writer = Sample();
    writer.version = version;
    const std::string bytes = writer.Bytes();
    const auto contents = Parse(bytes);
    ASSERT_TRUE(contents.ok()) << contents.status();
    const Metadata& metadata = contents->metadata;
    EXPECT_EQ(*metadata.String("general.architecture"), "llama");
    EXPECT_TRUE(*metadata.Bool("yes"));
    EXPECT_EQ(*metadata.Unsigned("byte"), 200u);
    EXPECT_EQ(*metadata.Unsigned("short"), 300u);
    EXPECT_EQ(*metadata.Unsigned("word"), 65535u);
    EXPECT_EQ(*metadata.Unsigned("int"), 70000u);
    EXPECT_EQ(*metadata.Unsigned("long"), uint64_t{1} << 40);
    EXPECT_EQ(*metadata.Unsigned("wide"), uint64_t{1} << 41);
    EXPECT_EQ(*metadata.Float("float"), 0.25);
    EXPECT_EQ(*metadata.Float("double"), 1e300);
    EXPECT_THAT(*metadata.Strings("texts"), ElementsAre("a", "", "ccc"));
    EXPECT_THAT(*metadata.Floats("floats"), ElementsAre(1.5f, -2.0f));
    EXPECT_THAT(*metadata.Integers("ints"), ElementsAre(7, -8));
    EXPECT_EQ(metadata.Keys().size(), 15u);
    EXPECT_THAT(bytes, HasSubstr(contents->metadata_bytes));
    const Tensor& b = contents->tensors.at("b");
    EXPECT_STREQ(b.type->name, "Q8_0");
    EXPECT_THAT(b.shape, ElementsAre(64));
    EXPECT_EQ(b.bytes, std::string(68, 'y'));
    EXPECT_THAT(contents->tensors.at("a").shape, ElementsAre(2, 3));
    EXPECT_EQ(contents->tensors.at("a").bytes, std::string(24, 'x'));
  }
}

TEST(GgufFileTest, ValuesOfOtherTypesAreNamed) {
  const std::string bytes = Sample().Bytes();
  const Metadata metadata = Parse(bytes)->metadata;
  EXPECT_EQ(metadata.String("none").status(),
            absl::NotFoundError("metadata none is missing"));
  EXPECT_EQ(
      metadata.Unsigned("small").status(),
      absl::InvalidArgumentError("metadata small is -3, expected 0 or more"));
  EXPECT_EQ(metadata.Unsigned("float").status(),
            absl::InvalidArgumentError(
                "metadata float is float32, expected an integer"));
  EXPECT_EQ(
      metadata.Bool("byte").status(),
      absl::InvalidArgumentError("metadata byte is uint8, expected a boolean"));
  EXPECT_EQ(metadata.Float("int").status(),
            absl::InvalidArgumentError(
                "metadata int is int32, expected a floating-point number"));
  EXPECT_EQ(metadata.String("texts").status(),
            absl::InvalidArgumentError(
                "metadata texts is a list, expected one value"));
  EXPECT_EQ(metadata.Strings("ints").status(),
            absl::InvalidArgumentError(
                "metadata ints is int32, expected a list of texts"));
  EXPECT_EQ(
      metadata.Floats("float").status(),
      absl::InvalidArgumentError("metadata float is no list, expected one"));
  EXPECT_FALSE(metadata.Integers("floats").ok());
  EXPECT_EQ(*metadata.UnsignedOr("none", 5), 5u);
  EXPECT_FALSE(metadata.UnsignedOr("yes", 5).ok());
}

TEST(GgufFileTest, EveryFileThatIsCutOffIsRefused) {
  const std::string bytes = Sample().Bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const absl::Status status = Parse(bytes.substr(0, size)).status();
    EXPECT_FALSE(status.ok()) << size;
    EXPECT_THAT(std::string(status.message()), HasSubstr("truncated")) << size;
  }
}

TEST(GgufFileTest, AnyByteMayLie) {
  const std::string sample = Sample().Bytes();
  for (size_t i = 0; i < sample.size(); ++i) {
    for (const char value : {'\0', '\1', '\x7F', '\xFF'}) {
      std::string bytes = sample;
      bytes[i] = value;
      const auto contents = Parse(bytes);
      if (!contents.ok()) continue;
      for (const auto& [name, tensor] : contents->tensors) {
        EXPECT_LE(tensor.bytes.end(), bytes.data() + bytes.size());
      }
    }
  }
}

TEST(GgufFileTest, HeadersAreChecked) {
  GgufWriter writer;
  writer.magic = "GGML";
  ExpectError(writer.Bytes(), absl::StatusCode::kInvalidArgument,
              "it begins with \"GGML\", not \"GGUF\": no GGUF file");
  writer = {};
  writer.version = 1;
  ExpectError(writer.Bytes(), absl::StatusCode::kUnimplemented,
              "GGUF version 1 is not supported; supported: 2, 3");
  writer.version = 4;
  ExpectError(writer.Bytes(), absl::StatusCode::kUnimplemented, "version 4");
  writer.version = 3 << 24;
  ExpectError(writer.Bytes(), absl::StatusCode::kUnimplemented,
              "written for big-endian machines");
  writer = {};
  writer.more_tensors = uint64_t{1} << 60;
  ExpectError(writer.Bytes(), absl::StatusCode::kInvalidArgument,
              "promises 1152921504606846976 tensors and 0 metadata pairs, the "
              "limits are 65536 and 65536");
  writer = {};
  writer.more_pairs = 1;
  writer.alignment = 8;  // the header's end: no padding that is read as a key
  ExpectError(writer.Bytes(), absl::StatusCode::kDataLoss, "truncated");
}

TEST(GgufFileTest, PairsAreChecked) {
  const auto bad = absl::StatusCode::kInvalidArgument;
  ExpectError(GgufWriter().U32("", 1).Bytes(), bad,
              "the key of metadata pair 0 has 0 bytes");
  ExpectError(GgufWriter().U32("a\n", 1).U32("a\n", 2).Bytes(), bad,
              "metadata \"a\\n\" is there twice");
  ExpectError(GgufWriter().Pair("a", 13, "").Bytes(), bad,
              "metadata \"a\" has type 13, the known types are 0 to 12");
  ExpectError(GgufWriter().Array("a", Writer::kArray, 1, "").Bytes(), bad,
              "metadata \"a\" is a list of lists");
  ExpectError(GgufWriter().Pair("a", Writer::kBool, "\2").Bytes(), bad,
              "holds a boolean that is neither 0 nor 1");
  ExpectError(GgufWriter()
                  .Array("a", Writer::kF64,
                         std::numeric_limits<uint64_t>::max() / 2, "")
                  .Bytes(),
              bad, "more than any file holds");
  ExpectError(GgufWriter().Array("a", Writer::kU8, 1 << 20, "").Bytes(),
              absl::StatusCode::kDataLoss, "truncated");
  ExpectError(
      GgufWriter().Array("a", Writer::kString, uint64_t{1} << 62, "").Bytes(),
      absl::StatusCode::kDataLoss, "truncated");
  for (const uint32_t alignment : {0u, 3u, 1u << 21}) {
    ExpectError(GgufWriter().U32("general.alignment", alignment).Bytes(), bad,
                "expected a power of two up to 1048576");
  }
}

TEST(GgufFileTest, TensorsAreChecked) {
  const auto bad = absl::StatusCode::kInvalidArgument;
  ExpectError(GgufWriter().Info("a", 0, {}, 0).Bytes(), bad,
              "tensor \"a\": it has 0 dimensions, expected 1 to 4");
  ExpectError(GgufWriter().Info("a", 0, {1, 1, 1, 1, 1}, 0).Bytes(), bad,
              "it has 5 dimensions");
  ExpectError(GgufWriter().Info("a", 0, {3, 0}, 0).Bytes(), bad,
              "dimension 0 is 0");
  ExpectError(GgufWriter().Info("a", 0, {-1}, 0).Bytes(), bad, "dimension 0");
  ExpectError(GgufWriter().Info("a", 4, {1}, 0).Bytes(),
              absl::StatusCode::kUnimplemented, "its type 4 is not known");
  ExpectError(GgufWriter().Info("a", 12, {2, 255}, 0).Bytes(), bad,
              "rows of 255 elements are no multiple of the 256 in a block of "
              "Q4_K");
  const int64_t huge = int64_t{1} << 40;
  ExpectError(GgufWriter().Info("a", 0, {huge, huge}, 0).Bytes(), bad,
              "shape [1099511627776, 1099511627776] overflows 64 bits");
  ExpectError(GgufWriter().Info("a", 0, {huge}, 0).Bytes(),
              absl::StatusCode::kDataLoss, "the file is truncated");
  ExpectError(
      GgufWriter().Tensor("a", 0, {1}, "1234").Info("b", 0, {1}, 0).Bytes(),
      bad,
      "tensor \"b\": its offset is 0, expected 32, where the one before "
      "it ends");
  ExpectError(
      GgufWriter().Tensor("a", 0, {1}, "1234").Info("b", 0, {1}, 36).Bytes(),
      bad, "its offset is 36, expected 32");
  ExpectError(GgufWriter()
                  .Tensor("a", 0, {1}, "1234")
                  .Tensor("a", 0, {1}, "1234")
                  .Bytes(),
              bad, "tensor \"a\" is there twice");
}

TEST(GgufFileTest, OpenNamesTheFile) {
  const std::string path = ::testing::TempDir() + "/no_such.gguf";
  EXPECT_FALSE(File::Is(path));
  EXPECT_FALSE(File::Is(::testing::TempDir()));
  EXPECT_EQ(File::Open(path).status().code(), absl::StatusCode::kNotFound);
  const std::string text = "tests/common/gguf/gguf_file_test.cc";
  EXPECT_TRUE(File::Is(text));
  EXPECT_EQ(
      File::Open(text).status(),
      absl::InvalidArgumentError(
          text + ": it begins with \"#inc\", not \"GGUF\": no GGUF file"));
}

}  // namespace
}  // namespace nacre::gguf
