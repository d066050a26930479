#include "model/pickle/torch_tensors.h"

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/checkpoint.h"
#include "model/load_model.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nacre::testing::ReadFile;
using nacre::testing::TestFolder;
using nacre::testing::WriteFile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// tests/data/model/make_torch_files.py wrote them.
std::string PathOf(const std::string& name) {
  return absl::StrCat(NACRE_TEST_DATA, "/model/torch_files/", name);
}

template <typename T>
std::vector<T> ValuesOf(const std::string& file, const TensorEntry& entry) {
  std::vector<T> values(entry.size_bytes / sizeof(T));
  std::memcpy(values.data(), file.data() + entry.offset, entry.size_bytes);
  return values;
}

TEST(TorchTensorsTest, ReadsEveryType) {
  for (const char* name : {"types.pt", "protocol_4.pt"}) {
    const std::string file = ReadFile(PathOf(name));
    const auto tensors = ParseTorchFile(file);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    ASSERT_EQ(tensors->size(), 15u);
    const auto at = [&](const char* key) { return tensors->at(key); };
    EXPECT_EQ(at("f32").dtype, "F32");
    EXPECT_THAT(at("f32").shape, ElementsAre(1, 3));
    EXPECT_THAT(ValuesOf<float>(file, at("f32")), ElementsAre(1.5, -2, 3.25));
    EXPECT_EQ(at("f16").dtype, "F16");
    EXPECT_THAT(ValuesOf<uint16_t>(file, at("f16")),
                ElementsAre(0x3800, 0xFBFF));
    EXPECT_EQ(at("bf16").dtype, "BF16");
    EXPECT_THAT(at("bf16").shape, ElementsAre(2, 1));
    EXPECT_THAT(ValuesOf<uint16_t>(file, at("bf16")),
                ElementsAre(0x3F80, 0xBC00));
    EXPECT_EQ(at("f64").dtype, "F64");
    EXPECT_THAT(ValuesOf<double>(file, at("f64")), ElementsAre(1e300));
    EXPECT_EQ(at("i64").dtype, "I64");
    EXPECT_THAT(ValuesOf<int64_t>(file, at("i64")),
                ElementsAre(-(int64_t{1} << 40), 7));
    EXPECT_EQ(at("i32").dtype, "I32");
    EXPECT_THAT(ValuesOf<int32_t>(file, at("i32")), ElementsAre(-5, 6));
    EXPECT_EQ(at("i16").dtype, "I16");
    EXPECT_EQ(at("i8").dtype, "I8");
    EXPECT_EQ(at("u8").dtype, "U8");
    EXPECT_THAT(ValuesOf<uint8_t>(file, at("u8")), ElementsAre(250));
    EXPECT_EQ(at("bool").dtype, "BOOL");
    EXPECT_THAT(ValuesOf<uint8_t>(file, at("bool")), ElementsAre(1, 0, 1));
    EXPECT_TRUE(at("scalar").shape.empty());
    EXPECT_THAT(ValuesOf<float>(file, at("scalar")), ElementsAre(2.5));
    EXPECT_THAT(at("empty").shape, ElementsAre(0, 3));
    EXPECT_EQ(at("empty").size_bytes, 0u);
    EXPECT_THAT(ValuesOf<float>(file, at("parameter")), ElementsAre(4));
    // Of the storage that "all" has, too.
    EXPECT_THAT(at("part").shape, ElementsAre(2, 4));
    EXPECT_THAT(ValuesOf<float>(file, at("part")),
                ElementsAre(4, 5, 6, 7, 8, 9, 10, 11));
    EXPECT_EQ(at("part").offset, at("all").offset + 16);
  }
}

// Types whose storage is bytes.
TEST(TorchTensorsTest, ReadsTypesWithoutAStorageOfTheirOwn) {
  for (const char* name : {"float8.bin", "float8_protocol_4.bin"}) {
    const std::string file = ReadFile(PathOf(name));
    const auto tensors = ParseTorchFile(file);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    ASSERT_EQ(tensors->size(), 8u);
    const auto at = [&](const char* key) { return tensors->at(key); };
    EXPECT_EQ(at("e4m3").dtype, "F8_E4M3");
    EXPECT_THAT(at("e4m3").shape, ElementsAre(16, 16));
    std::vector<uint8_t> codes(256);
    std::iota(codes.begin(), codes.end(), uint8_t{0});
    EXPECT_EQ(ValuesOf<uint8_t>(file, at("e4m3")), codes);
    EXPECT_THAT(at("part").shape, ElementsAre(2, 16));
    EXPECT_EQ(at("part").offset, at("e4m3").offset + 48);
    EXPECT_EQ(at("part").size_bytes, 32u);
    EXPECT_EQ(at("e5m2").dtype, "F8_E5M2");
    EXPECT_THAT(ValuesOf<uint8_t>(file, at("e5m2")), ElementsAre(0x3E, 0xC0));
    EXPECT_EQ(at("parameter").dtype, "F8_E4M3");
    EXPECT_EQ(ValuesOf<uint8_t>(file, at("parameter")),
              std::vector<uint8_t>(codes.begin(), codes.begin() + 16));
    EXPECT_EQ(at("u16").dtype, "U16");
    EXPECT_THAT(ValuesOf<uint16_t>(file, at("u16")), ElementsAre(1, 65535));
    EXPECT_EQ(at("u32").dtype, "U32");
    EXPECT_THAT(ValuesOf<uint32_t>(file, at("u32")),
                ElementsAre(7, 4294967295));
    EXPECT_EQ(at("u64").dtype, "U64");
    EXPECT_THAT(ValuesOf<uint64_t>(file, at("u64")),
                ElementsAre(uint64_t{1} << 40));
    EXPECT_EQ(at("f32").dtype, "F32");
  }
}

TEST(TorchTensorsTest, ReadsTheStateOfAModule) {
  const auto tensors = ParseTorchFile(ReadFile(PathOf("module.pt")));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_THAT(tensors->at("weight").shape, ElementsAre(2, 3));
  EXPECT_THAT(tensors->at("bias").shape, ElementsAre(2));
}

TEST(TorchTensorsTest, SaysWhatItDoesNotRead) {
  const struct {
    const char* file;
    const char* message;
  } kCases[] = {
      {"command.pt",
       "the pickle calls \"posix system\", and nothing of a "
       "pickle is run but what rebuilds tensors"},
      {"whole_module.pt",
       "the pickle calls \"torch.nn.modules.linear Linear\""},
      {"complex.pt", "the pickle calls \"torch ComplexFloatStorage\""},
      {"complex.pt",
       "and nothing of a pickle is run but what rebuilds tensors (tensor "
       "\"c\")"},
      {"float8_other.bin",
       "the pickle calls \"torch float8_e4m3fnuz\", and nothing of a pickle is "
       "run but what rebuilds tensors (tensor \"w\")"},
      {"float8_transposed.bin",
       "tensor \"w\": its strides are [1, 16] for shape [16, 16]"},
      {"transposed.pt",
       "tensor \"t\": its strides are [1, 3] for shape [3, 2]: "
       "it does not lie in one piece"},
      {"number.pt", "tensor \"n\": it is no tensor"},
      {"list.pt", "something else than a dictionary of tensors"},
      {"old.pt", "files of PyTorch before 1.6 are not read"},
      {"plain.pt", "not a zip archive"},
  };
  for (const auto& [file, message] : kCases) {
    const absl::Status status = ParseTorchFile(ReadFile(PathOf(file))).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << file;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

// Changes what stands in a file, byte for byte.
std::string ErrorAfter(absl::string_view from, absl::string_view to,
                       const char* name = "types.pt") {
  std::string file = ReadFile(PathOf(name));
  const size_t at = file.find(from.data(), 0, from.size());
  EXPECT_NE(at, std::string::npos);
  file.replace(at, from.size(), to.data(), to.size());
  const auto tensors = ParseTorchFile(file);
  EXPECT_FALSE(tensors.ok());
  return tensors.status().ToString();
}

TEST(TorchTensorsTest, NamesTheTensorThatDoesNotFit) {
  using absl::string_view;
  // The sizes of "f32", [1, 3], and its strides follow.
  EXPECT_THAT(ErrorAfter(string_view("K\x01K\x03\x86", 5),
                         string_view("K\x02K\x03\x86", 5)),
              HasSubstr("tensor \"f32\": its 6 elements from 0 on reach past "
                        "the 3 of its storage"));
  EXPECT_THAT(ErrorAfter(string_view("X\x01\0\0\0"
                                     "0q",
                                     7),
                         string_view("X\x01\0\0\0"
                                     "?q",
                                     7)),
              HasSubstr("tensor \"f32\": its storage \"?\" is not in the"));
  // One argument more of what rebuilds it.
  EXPECT_THAT(ErrorAfter(")Rq\x0Btq", ")RK\x01tq"),
              HasSubstr("tensor \"f32\": it has metadata"));
  EXPECT_THAT(ErrorAfter("f16", "f32"),
              HasSubstr("tensor \"f32\" is in the pickle twice"));
  EXPECT_THAT(ErrorAfter("little", "bigbig"), HasSubstr("not little-endian"));
}

TEST(TorchTensorsTest, TypesOfBytesAreReadAsStrictly) {
  using absl::string_view;
  // Padded to the same size by steps that push something and drop it.
  const auto error = [](string_view from, string_view to) {
    std::string padded(to);
    if ((from.size() - to.size()) % 2 != 0)
      padded +=
          "K\x01"
          "b";
    while (padded.size() < from.size()) padded += "Nb";
    return ErrorAfter(from, padded, "float8.bin");
  };
  // "e4m3" of [16, 16].
  EXPECT_THAT(
      error(string_view("K\x10K\x10\x86", 5), string_view("K\x11K\x10\x86", 5)),
      HasSubstr("tensor \"e4m3\": its 272 elements from 0 on reach "
                "past the 256 of its storage"));
  // As wide as two of its storage's bytes.
  EXPECT_THAT(error("torch\nfloat8_e4m3fn\n", "torch\nuint16\n"),
              HasSubstr("tensor \"e4m3\": its 256 elements from 0 on reach "
                        "past the 128 of its storage"));
  // A storage with a type, a type that is none, and none at all.
  constexpr char kNone[] = "tensor \"e4m3\": it is no tensor";
  EXPECT_THAT(error("torch.storage\nUntypedStorage\n", "torch\nByteStorage\n"),
              HasSubstr(kNone));
  EXPECT_THAT(error("torch\nfloat8_e4m3fn\n", "torch\nByteStorage\n"),
              HasSubstr(kNone));
  EXPECT_THAT(error("ctorch\nfloat8_e4m3fn\n", "N"), HasSubstr(kNone));
  // What takes the type from the storage, and the other way round.
  EXPECT_THAT(error("_rebuild_tensor_v3", "_rebuild_tensor_v2"),
              HasSubstr("tensor \"e4m3\": it has metadata"));
  EXPECT_THAT(ErrorAfter("_rebuild_tensor_v2", "_rebuild_tensor_v3"),
              HasSubstr("tensor \"f32\": it is no tensor"));
  // One argument more of what rebuilds it.
  EXPECT_THAT(error(")Rq\x0B", ")RK\x01"),
              HasSubstr("tensor \"e4m3\": it has metadata"));
}

// Of each cut, one line; no byte outside the file.
TEST(TorchTensorsTest, TensorsThatShareTooMuchAreRefused) {
  const absl::Status status =
      ParseTorchFile(ReadFile(PathOf("shared.pt"))).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("more than 8 times the file's bytes"));
}

TEST(TorchTensorsTest, EveryCutIsRefused) {
  for (const char* name : {"types.pt", "float8.bin"}) {
    const std::string file = ReadFile(PathOf(name));
    for (size_t size = 0; size < file.size(); size += 7) {
      EXPECT_FALSE(ParseTorchFile(file.substr(0, size)).ok()) << name << size;
    }
  }
}

// A model of either file and of shards of them answers alike.
TEST(TorchTensorsTest, ModelsOfPicklesAnswerAsOfSafetensors) {
  const std::string dir = TestFolder("safetensors");
  WriteFile(dir + "/config.json", ReadFile(PathOf("bin/config.json")));
  WriteFile(
      dir + "/model.safetensors",
      ReadFile(absl::StrCat(NACRE_TEST_DATA,
                            "/model/quantized/gptq/dequantized.safetensors")));
  for (const char* kind : {"reference", "cpu"}) {
    kernels::BackendOptions options;
    options.kind = kind;
    const auto backend = *kernels::CreateBackend(options);
    std::vector<std::string> fingerprints;
    const auto logits = [&](const std::string& from) {
      const auto model = LoadModel(from, backend.get(), {1 << 20, {}});
      EXPECT_TRUE(model.ok()) << model.status();
      fingerprints.push_back((*model)->info().fingerprint);
      const std::vector<int32_t> ids = {1, 17, 4, 9, 20};
      const auto sequence = *(*model)->NewSequence(8);
      const SequenceRows rows = {sequence.get(), ids, 5};
      const auto result = (*model)->Forward({&rows, 1});
      return std::vector<float>(result->begin(), result->end());
    };
    const std::vector<float> expected = logits(dir);
    EXPECT_EQ(expected.size(), 5u * 24);
    EXPECT_EQ(logits(PathOf("bin")), expected) << kind;
    EXPECT_EQ(logits(PathOf("shards")), expected) << kind;
    // The same tensors are the same model.
    EXPECT_EQ(fingerprints[1], fingerprints[0]);
    EXPECT_EQ(fingerprints[2], fingerprints[0]);
  }
}

TEST(TorchTensorsTest, ACheckpointNamesItsFile) {
  const auto checkpoint = Checkpoint::OpenFile(PathOf("command.pt"));
  EXPECT_THAT(std::string(checkpoint.status().message()),
              HasSubstr("command.pt: the pickle calls"));
  EXPECT_TRUE(IsTorchFile("a/pytorch_model-00001-of-00002.bin"));
  EXPECT_FALSE(IsTorchFile("a/model.safetensors"));
  // Shards stay in their folder.
  const std::string dir = TestFolder("shards");
  WriteFile(dir + "/pytorch_model.bin.index.json",
            R"({"weight_map": {"a": "../x.bin"}})");
  EXPECT_THAT(std::string(Checkpoint::Open(dir).status().message()),
              HasSubstr("expected a plain file name"));
}

}  // namespace
}  // namespace nacre::model
