#include "model/safetensors.h"

#include <cstring>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/safetensors_writer.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;

std::string File(const std::string& header, size_t data_bytes) {
  const uint64_t size = header.size();
  std::string bytes(sizeof(size), '\0');
  std::memcpy(bytes.data(), &size, sizeof(size));
  return bytes + header + std::string(data_bytes, 'x');
}

std::string ErrorOf(const std::string& bytes) {
  return ParseSafetensors(bytes).status().ToString();
}

TEST(SafetensorsTest, ReadsDtypesShapesAndOffsets) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},)"
      R"("b":{"dtype":"BF16","shape":[3,2],"data_offsets":[4,16]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("empty":{"dtype":"I64","shape":[0,5],"data_offsets":[16,16]}})";
  const auto tensors = ParseSafetensors(File(header, 16));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->size(), 3u);
  const TensorEntry& b = tensors->at("b");
  EXPECT_EQ(b.dtype, "BF16");
  EXPECT_EQ(ShapeString(b.shape), "[3, 2]");
  EXPECT_EQ(b.offset, 8 + header.size() + 4);
  EXPECT_EQ(b.size_bytes, 12u);
  EXPECT_EQ(ShapeString(tensors->at("a").shape), "[]");
}

TEST(SafetensorsTest, AFileMayHaveNoData) {
  const auto tensors = ParseSafetensors(File("{}", 0));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_TRUE(tensors->empty());
}

TEST(SafetensorsTest, RefusesATruncatedFile) {
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[5],"data_offsets":[0,20]}})";
  const std::string whole = File(header, 20);
  ASSERT_TRUE(ParseSafetensors(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto tensors = ParseSafetensors(whole.substr(0, size));
    EXPECT_EQ(tensors.status().code(), absl::StatusCode::kDataLoss) << size;
  }
  EXPECT_THAT(ErrorOf(whole.substr(0, 3)), HasSubstr("the file has 3 bytes"));
  EXPECT_THAT(ErrorOf(whole.substr(0, whole.size() - 1)),
              HasSubstr("past the file's 19 bytes of data"));
}

TEST(SafetensorsTest, RefusesAHugeHeaderLength) {
  std::string bytes(64, '\xff');
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("18446744073709551615"));
  EXPECT_EQ(ParseSafetensors(bytes).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SafetensorsTest, RefusesADeepHeader) {
  EXPECT_THAT(ErrorOf(File(R"({"a":)" + std::string(200'000, '[') +
                               std::string(200'000, ']') + "}",
                           8)),
              HasSubstr("the header is nested deeper than 64"));
}

// In a time that grows with their number: with its square it is some minutes.
TEST(SafetensorsTest, ReadsManyTensors) {
  constexpr int kTensors = 50'000;
  std::string header = "{";
  for (int i = 0; i < kTensors; ++i) {
    absl::StrAppend(&header, i == 0 ? "" : ",", "\"t", i,
                    R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})");
  }
  const absl::Time start = absl::Now();
  const auto tensors = ParseSafetensors(File(header + "}", 0));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->size(), size_t{kTensors});
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
}

TEST(SafetensorsTest, RefusesLyingHeaders) {
  const struct {
    const char* header;
    const char* message;
  } cases[] = {
      {"", "not a JSON object"},
      {"{", "not a JSON object"},
      {"[]", "not a JSON object"},
      {R"({"a":3})", "entry is not an object"},
      {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", "dtype is missing"},
      {R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})",
       "dtype \"F33\" is not known"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", "shape is missing"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
       "not an unsigned integer"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})",
       "not an unsigned integer"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "data_offsets is missing"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})",
       "data_offsets is missing"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-1,7]}})",
       "two unsigned integers"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
       "end before they begin"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
       "hold 8 bytes, but dtype F32 and shape [3] need 12"},
      {R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,8]}})", "need 4"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],)"
       R"("data_offsets":[0,0]}})",
       "overflows"},
      {R"({"a":{"dtype":"F32","shape":[2],)"
       R"("data_offsets":[18446744073709551608,0]}})",
       "end before"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "names tensor \"a\" twice"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "tensor \"b\" begins at 4, inside the tensor before it, which ends at "
       "8"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "hole"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       "has 8 bytes of data, its tensors cover 4"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})",
       "past the file's 8 bytes of data"},
  };
  for (const auto& bad : cases) {
    EXPECT_THAT(ErrorOf(File(bad.header, 8)), HasSubstr(bad.message))
        << bad.header;
  }
}

TEST(SafetensorsTest, NamesTheFileThatIsMissingOrMalformed) {
  const std::string dir = nacre::testing::TestFolder("files");
  const auto missing = SafetensorsFile::Open(dir + "/no.safetensors");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.status().ToString(), HasSubstr("no.safetensors"));
  nacre::testing::WriteFile(dir + "/empty.safetensors", "");
  EXPECT_THAT(
      SafetensorsFile::Open(dir + "/empty.safetensors").status().ToString(),
      HasSubstr("empty.safetensors: the file has 0 bytes"));
}

TEST(SafetensorsWriterTest, WhatIsWrittenIsReadBack) {
  const std::string path =
      nacre::testing::TestFolder("round_trip") + "/model.safetensors";
  const auto writer =
      SafetensorsWriter::Create(path, {{"z", kernels::DType::kF32, {3}},
                                       {"a", kernels::DType::kBF16, {1, 5}},
                                       {"none", kernels::DType::kF16, {0}}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::string data = "0123456789abABCDEFGHIJ";
  ASSERT_TRUE((*writer)->Append(data.data(), 7).ok());
  ASSERT_TRUE((*writer)->Append(data.data() + 7, data.size() - 7).ok());
  EXPECT_FALSE(std::filesystem::exists(path)) << "named before it is whole";
  ASSERT_TRUE((*writer)->Finish().ok());

  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const TensorTable& tensors = (*file)->tensors();
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ((*file)->Bytes(tensors.at("z")), "0123456789ab");
  EXPECT_EQ((*file)->Bytes(tensors.at("a")), "ABCDEFGHIJ");
  EXPECT_EQ(tensors.at("a").offset % 2, 0u);
}

TEST(SafetensorsWriterTest, LeavesNothingBehindWhenAbandoned) {
  const std::string dir = nacre::testing::TestFolder("abandoned");
  {
    const auto writer = SafetensorsWriter::Create(
        dir + "/model.safetensors", {{"a", kernels::DType::kF32, {3}}});
    ASSERT_TRUE(writer.ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir));
}

TEST(SafetensorsWriterTest, ReportsRepeatedNamesAndTheDisksErrors) {
  const std::string dir = nacre::testing::TestFolder("errors");
  const TensorSpec tensor = {"a", kernels::DType::kF32, {3}};
  EXPECT_EQ(
      SafetensorsWriter::Create(dir + "/m", {tensor, tensor}).status().code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SafetensorsWriter::Create(dir + "/no/m", {tensor}).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace nacre::model
