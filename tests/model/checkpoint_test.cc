#include "model/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/safetensors_writer.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Writes one tensor of zeros.
void WriteShard(const std::string& path, const TensorSpec& tensor) {
  auto writer = SafetensorsWriter::Create(path, {tensor});
  ASSERT_TRUE(writer.ok()) << writer.status();
  size_t size = kernels::SizeOf(tensor.dtype);
  for (const int64_t dimension : tensor.shape) size *= dimension;
  const std::string zeros(size, '\0');
  ASSERT_TRUE((*writer)->Append(zeros.data(), zeros.size()).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
}

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override { dir_ = nacre::testing::TestFolder("model"); }

  void WriteIndex(const std::string& weight_map) {
    nacre::testing::WriteFile(dir_ + "/model.safetensors.index.json",
                              "{\"weight_map\": " + weight_map + "}");
  }
  std::string OpenError() { return Checkpoint::Open(dir_).status().ToString(); }

  std::string dir_;
};

TEST_F(CheckpointTest, LooksTensorsUpInSeveralShards) {
  WriteShard(dir_ + "/one.safetensors", {"a", kernels::DType::kF32, {3, 2}});
  WriteShard(dir_ + "/two.safetensors", {"b", kernels::DType::kF16, {4}});
  WriteIndex(R"({"a": "one.safetensors", "b": "two.safetensors"})");
  const auto checkpoint = Checkpoint::Open(dir_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT((*checkpoint)->Names(), ElementsAre("a", "b"));
  EXPECT_TRUE((*checkpoint)->Contains("a"));
  const auto a = (*checkpoint)->Matrix("a", 3, 2);
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(a->dtype, kernels::DType::kF32);
  EXPECT_EQ(a->rows, 3);
  const auto b = (*checkpoint)->Vector("b", 4);
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_THAT(*b, ElementsAre(0, 0, 0, 0));
}

TEST_F(CheckpointTest, RowsAreThoseOfTheMatrixAndStayWhenGivenBack) {
  nacre::testing::TinyCheckpoint shape;
  shape.dtype = kernels::DType::kBF16;
  nacre::testing::WriteTinyCheckpoint(shape, dir_);
  const auto checkpoint = *Checkpoint::Open(dir_);
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  const auto matrix = *checkpoint->Matrix(name, 100, 52);
  const std::string expected(static_cast<const char*>(matrix.data),
                             size_t{100} * 52 * 2);
  const MatrixRows rows = *checkpoint->Rows(name, 100, 52);
  EXPECT_EQ(rows.matrix.dtype, kernels::DType::kBF16);
  EXPECT_EQ(rows.matrix.source, rows.source.get());
  std::vector<char> scratch;
  for (int pass = 0; pass < 2; ++pass) {
    std::string read;
    for (int first = 0; first < 100; first += 30) {
      const int count = std::min(30, 100 - first);
      read.append(
          static_cast<const char*>(rows.source->Read(first, count, &scratch)),
          static_cast<size_t>(count) * 52 * 2);
      rows.source->GiveBack(first, count);
    }
    EXPECT_EQ(read, expected);
    checkpoint->GiveBack();
  }
  EXPECT_EQ(std::string(static_cast<const char*>(matrix.data), 5200 * 2),
            expected);
  EXPECT_EQ(checkpoint->Rows(name, 100, 53).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(checkpoint->Rows("none", 1, 1).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, SaysWhichShapeWasExpectedAndWhichFound) {
  WriteShard(dir_ + "/model.safetensors", {"a", kernels::DType::kF32, {3, 2}});
  const auto checkpoint = Checkpoint::Open(dir_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto matrix = (*checkpoint)->Matrix("a", 2, 3);
  EXPECT_EQ(matrix.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(matrix.status().ToString(),
              HasSubstr("a has shape [3, 2], the config implies [2, 3]"));
  EXPECT_THAT((*checkpoint)->Vector("a", 6).status().ToString(),
              HasSubstr("[3, 2], the config implies [6]"));
  EXPECT_EQ((*checkpoint)->Matrix("b", 1, 1).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, RefusesATypeThatIsNotFloatingPointOnlyWhenAskedForIt) {
  const std::string header =
      R"({"a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})";
  const uint64_t size = header.size();
  nacre::testing::WriteFile(
      dir_ + "/model.safetensors",
      std::string(reinterpret_cast<const char*>(&size), 8) + header + "1234");
  const auto checkpoint = Checkpoint::Open(dir_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->Find("a").status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_THAT((*checkpoint)->Find("a").status().ToString(), HasSubstr("I32"));
}

TEST_F(CheckpointTest, NamesWhatIsMissing) {
  EXPECT_THAT(OpenError(), HasSubstr("has neither model.safetensors nor"));
  EXPECT_EQ(Checkpoint::Open(dir_ + "/no").status().code(),
            absl::StatusCode::kNotFound);
  WriteIndex(R"({"a": "one.safetensors"})");
  EXPECT_THAT(OpenError(), HasSubstr("one.safetensors"));
  EXPECT_EQ(Checkpoint::Open(dir_).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, RefusesAMalformedIndex) {
  for (const char* text : {"", "[]"}) {
    nacre::testing::WriteFile(dir_ + "/model.safetensors.index.json", text);
    EXPECT_THAT(OpenError(), HasSubstr(".index.json: not a JSON object"))
        << text;
  }
  for (const char* text : {"{}", R"({"weight_map": []})"}) {
    nacre::testing::WriteFile(dir_ + "/model.safetensors.index.json", text);
    EXPECT_THAT(OpenError(), HasSubstr("weight_map")) << text;
  }
  WriteShard(dir_ + "/one.safetensors", {"a", kernels::DType::kF32, {3}});
  WriteIndex(R"({"b": "one.safetensors"})");
  EXPECT_THAT(OpenError(),
              HasSubstr("tensor b is not in its shard one.safetensors"));
}

TEST_F(CheckpointTest, RefusesAShardOutsideItsFolder) {
  for (const char* shard : {R"("../x.safetensors")", R"("/etc/passwd")",
                            R"("..")", R"("")", "3", R"("a\u0000b")"}) {
    WriteIndex(std::string(R"({"a": )") + shard + "}");
    EXPECT_THAT(OpenError(), HasSubstr("expected a plain file name")) << shard;
  }
}

TEST_F(CheckpointTest, RefusesADeepIndex) {
  WriteIndex(R"({"a": )" + std::string(200'000, '[') +
             std::string(200'000, ']') + "}");
  EXPECT_THAT(OpenError(), HasSubstr("model.safetensors.index.json: JSON is "
                                     "nested deeper than 64"));
}

// A pipe would wait for a writer. Links are what caches are made of.
TEST_F(CheckpointTest, RefusesPipesAndFollowsLinks) {
  WriteIndex(R"({"a": "one.safetensors"})");
  for (const char* name : {"/one.safetensors", "/model.safetensors.index.json",
                           "/model.safetensors", "/config.json"}) {
    const std::string path = dir_ + name;
    if (std::filesystem::exists(path)) std::filesystem::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_THAT(OpenError(), HasSubstr(path + " is not a regular file"));
    std::filesystem::remove(path);
    if (name == std::string("/one.safetensors")) {
      const std::string blob = nacre::testing::TestFolder("blobs") + "/blob";
      WriteShard(blob, {"a", kernels::DType::kF32, {3}});
      std::filesystem::create_symlink(blob, path);
      EXPECT_EQ(OpenError(), "OK");
    }
  }
}

TEST_F(CheckpointTest, FingerprintChangesWithConfigTableAndWeights) {
  nacre::testing::TinyCheckpoint shape;
  nacre::testing::WriteTinyCheckpoint(shape, dir_);
  const auto first = Checkpoint::Open(dir_);
  ASSERT_TRUE(first.ok());
  const std::string fingerprint = (*first)->Fingerprint("config");
  EXPECT_EQ(fingerprint.size(), 64u);
  EXPECT_EQ(fingerprint, (*first)->Fingerprint("config"));
  EXPECT_NE(fingerprint, (*first)->Fingerprint("config2"));

  const std::string other_dir = nacre::testing::TestFolder("other");
  nacre::testing::WriteTinyCheckpoint(shape, other_dir);
  EXPECT_EQ((*Checkpoint::Open(other_dir))->Fingerprint("config"), fingerprint);
  shape.seed = 2;
  nacre::testing::WriteTinyCheckpoint(shape, other_dir);
  EXPECT_NE((*Checkpoint::Open(other_dir))->Fingerprint("config"), fingerprint);
}

// Wherever in a tensor they differ: of late rows of a head, too.
TEST_F(CheckpointTest, FingerprintChangesWithAnyByteOfAnyTensor) {
  nacre::testing::TinyCheckpoint shape;
  shape.vocab_size = 500;  // of 26 KB a head
  nacre::testing::WriteTinyCheckpoint(shape, dir_);
  const std::string path = dir_ + "/model.safetensors";
  const std::string content = nacre::testing::ReadFile(path);
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok());
  const std::string fingerprint = (*Checkpoint::Open(dir_))->Fingerprint("{}");
  for (const auto& [name, entry] : (*file)->tensors()) {
    for (const uint64_t at :
         {uint64_t{0}, std::min<uint64_t>(5000, entry.size_bytes / 2),
          entry.size_bytes - 1}) {
      std::string other = content;
      other[entry.offset + at] ^= 1;
      nacre::testing::WriteFile(path, other);
      EXPECT_NE((*Checkpoint::Open(dir_))->Fingerprint("{}"), fingerprint)
          << name << ", byte " << at;
    }
  }
}

// One file, of whole numbers and of others.
TEST_F(CheckpointTest, WholeNumbers) {
  const std::string header =
      R"({"f":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("i":{"dtype":"I32","shape":[2],"data_offsets":[4,12]},)"
      R"("l":{"dtype":"I64","shape":[1],"data_offsets":[12,20]},)"
      R"("m":{"dtype":"I32","shape":[1,1],"data_offsets":[20,24]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size() & 0xFF);
  file[1] = static_cast<char>(header.size() >> 8);
  file += header + std::string(4, '\0') + std::string("\x05\0\0\0", 4) +
          std::string("\xFE\xFF\xFF\xFF", 4) +
          std::string("\0\0\0\0\x01\0\0\0", 8) + std::string(4, '\0');
  const std::string path = dir_ + "/any.safetensors";
  nacre::testing::WriteFile(path, file);
  const auto checkpoint = Checkpoint::OpenFile(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(*(*checkpoint)->Integers("i"), (std::vector<int64_t>{5, -2}));
  EXPECT_EQ(*(*checkpoint)->Integers("l"),
            (std::vector<int64_t>{int64_t{1} << 32}));
  const auto refusal = [&](const char* name) {
    return (*checkpoint)->Integers(name).status();
  };
  EXPECT_EQ(refusal("none").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(refusal("f").code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(refusal("m").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Checkpoint::OpenFile(dir_ + "/none").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace nacre::model
