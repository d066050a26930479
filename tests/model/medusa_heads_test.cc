// Each published kind of file against PyTorch
// (tests/data/model/make_medusa_goldens.py), and what is refused.

#include "model/medusa_heads.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/checkpoint.h"
#include "tests/model/named_backend.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;
using Row = std::vector<float>;

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr const char* kKinds[] = {"medusa_v1", "medusa_v2", "vllm_own",
                                  "vllm_shared", "modelopt"};

std::string FolderOf(const std::string& kind) {
  return std::string(NACRE_TEST_DATA) + "/model/medusa/" + kind;
}

struct Golden {
  std::vector<Row> target;               // its vocabulary
  std::vector<Row> hidden;               // by row
  std::vector<std::vector<Row>> logits;  // by head and row
};

Golden ReadGolden(const std::string& kind) {
  const auto json = nlohmann::json::parse(
      nacre::testing::ReadFile(FolderOf(kind) + "/golden.json"));
  Golden golden{json["target"], json["hidden"], {}};
  for (const auto& head : json["logits"]) {
    auto& rows = golden.logits.emplace_back();
    for (const auto& row : head) {
      Row& values = rows.emplace_back();
      for (const auto& value : row) {
        values.push_back(value.is_null() ? kNever : value.get<float>());
      }
    }
  }
  return golden;
}

Row Joined(absl::Span<const Row> rows) {
  Row all;
  for (const Row& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

// Of a model only what heads are loaded beside.
class HeadOnlyModel : public LanguageModel {
 public:
  HeadOnlyModel(kernels::Backend* backend, const std::vector<Row>& vocabulary)
      : backend_(backend) {
    info_.vocab_size = static_cast<int>(vocabulary.size());
    info_.hidden_size = static_cast<int>(vocabulary[0].size());
    info_.fingerprint = "f00d";
    const Row values = Joined(vocabulary);
    const kernels::HostMatrix matrix = {kernels::DType::kF32, values.data(),
                                        info_.vocab_size, info_.hidden_size};
    auto packed = backend->Pack({&matrix, 1});
    EXPECT_TRUE(packed.ok()) << packed.status();
    head_ = *std::move(packed);
  }

  const ModelInfo& info() const override { return info_; }
  absl::optional<VocabularyHead> vocabulary_head() const override {
    return VocabularyHead{backend_, head_.get(), soft_cap};
  }
  void BindComputeThread() override {}
  absl::StatusOr<std::unique_ptr<Sequence>> NewSequence(int) override {
    return absl::UnimplementedError("a head alone");
  }
  int64_t kv_free_tokens() const override { return 0; }
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const SequenceRows>) override {
    return absl::UnimplementedError("a head alone");
  }

  float soft_cap = 0;

 private:
  kernels::Backend* backend_;
  ModelInfo info_;
  std::unique_ptr<kernels::PackedMatrix> head_;
};

struct Loaded {
  explicit Loaded(const Golden& golden, const std::string& kind,
                  const std::string& name = "cpu")
      : backend(NamedBackend(name)), model(backend.get(), golden.target) {
    auto result = MedusaHeads::Load(FolderOf(kind), model);
    EXPECT_TRUE(result.ok()) << kind << ": " << result.status();
    heads = *std::move(result);
  }

  // By head and row.
  std::vector<std::vector<Row>> Run(absl::Span<const Row> hidden) {
    const auto logits = heads->Run(Joined(hidden));
    const size_t vocab = static_cast<size_t>(model.info().vocab_size);
    EXPECT_EQ(logits.size(),
              vocab * hidden.size() * static_cast<size_t>(heads->count()));
    std::vector<std::vector<Row>> result;
    for (size_t at = 0; at < logits.size(); at += vocab) {
      if (result.empty() || result.back().size() == hidden.size()) {
        result.emplace_back();
      }
      result.back().emplace_back(logits.begin() + at,
                                 logits.begin() + at + vocab);
    }
    return result;
  }

  std::unique_ptr<kernels::Backend> backend;
  HeadOnlyModel model;
  std::unique_ptr<MedusaHeads> heads;
};

// The largest difference of two heads' rows, relative to the largest of b. An
// impossible token must be impossible in both.
float Difference(absl::Span<const Row> a, absl::Span<const Row> b) {
  float largest = 0;
  float difference = 0;
  for (size_t row = 0; row < b.size(); ++row) {
    for (size_t id = 0; id < b[row].size(); ++id) {
      if (a[row][id] == kNever || b[row][id] == kNever) {
        if (a[row][id] != b[row][id]) return kNever;
        continue;
      }
      largest = std::max(largest, std::abs(b[row][id]));
      const float error = std::abs(a[row][id] - b[row][id]);
      difference = std::isnan(error) ? error : std::max(difference, error);
    }
  }
  return difference / largest;
}

class MedusaHeadsTest : public DraftBackendTest {};

TEST_P(MedusaHeadsTest, EachKindSaysWhatPyTorchSays) {
  for (const std::string kind : kKinds) {
    const Golden golden = ReadGolden(kind);
    Loaded loaded(golden, kind, GetParam());
    const auto logits = loaded.Run(golden.hidden);
    ASSERT_EQ(logits.size(), golden.logits.size());
    for (size_t k = 0; k < logits.size(); ++k) {
      const float difference = Difference(logits[k], golden.logits[k]);
      EXPECT_LE(difference, LogitTolerance(GetParam()))
          << kind << " head " << k;
      EXPECT_GE(difference, 0) << kind << " head " << k;
    }
  }
}

TEST_P(MedusaHeadsTest, ARowDoesNotDependOnTheOthers) {
  for (const std::string kind : kKinds) {
    const Golden golden = ReadGolden(kind);
    Loaded loaded(golden, kind, GetParam());
    const auto together = loaded.Run(golden.hidden);
    for (size_t row = 0; row < golden.hidden.size(); ++row) {
      const auto alone = loaded.Run({&golden.hidden[row], 1});
      for (size_t k = 0; k < alone.size(); ++k) {
        EXPECT_EQ(alone[k][0], together[k][row]) << kind;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, MedusaHeadsTest,
                         ::testing::Values(NACRE_HEAD_BACKENDS), NameOfBackend);

// What a loader may get wrong changes logits by far more than the tolerance.
TEST(MedusaGoldensTest, TellWrongHeadsApart) {
  enum class Wrong { kNothing, kNoResidual, kRelu, kNoBias, kNextHead };
  const std::string kind = "medusa_v1";
  const Golden golden = ReadGolden(kind);
  const auto file =
      Checkpoint::OpenFile(FolderOf(kind) + "/medusa_lm_head.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  const int hidden = static_cast<int>(golden.hidden[0].size());
  const int vocab = static_cast<int>(golden.target.size());
  const auto matrix = [&](const std::string& name, int rows) {
    const auto found = (*file)->Matrix(name, rows, hidden);
    EXPECT_TRUE(found.ok()) << found.status();
    Row values(static_cast<size_t>(rows) * static_cast<size_t>(hidden));
    std::memcpy(values.data(), found->data, values.size() * sizeof(float));
    return values;
  };
  const auto product = [](const Row& w, const Row& x, size_t rows) {
    Row y(rows);
    for (size_t i = 0; i < w.size(); ++i) {
      y[i / x.size()] += w[i] * x[i % x.size()];
    }
    return y;
  };
  const auto run = [&](size_t k, const Row& x, Wrong wrong) {
    if (wrong == Wrong::kNextHead) k = (k + 1) % golden.logits.size();
    const std::string head = std::to_string(k);
    Row z = product(matrix(head + ".0.linear.weight", hidden), x, x.size());
    const auto bias = (*file)->Vector(head + ".0.linear.bias", hidden);
    for (size_t i = 0; i < z.size(); ++i) {
      if (wrong != Wrong::kNoBias) z[i] += (*bias)[i];
      z[i] = wrong == Wrong::kRelu ? std::max(z[i], 0.0f)
                                   : z[i] / (1 + std::exp(-z[i]));
      if (wrong != Wrong::kNoResidual) z[i] += x[i];
    }
    return product(matrix(head + ".1.weight", vocab), z,
                   static_cast<size_t>(vocab));
  };
  for (const Wrong wrong : {Wrong::kNothing, Wrong::kNoResidual, Wrong::kRelu,
                            Wrong::kNoBias, Wrong::kNextHead}) {
    for (size_t k = 0; k < golden.logits.size(); ++k) {
      std::vector<Row> rows;
      for (const Row& x : golden.hidden) rows.push_back(run(k, x, wrong));
      const float difference = Difference(rows, golden.logits[k]);
      if (wrong == Wrong::kNothing) {
        EXPECT_LE(difference, 1e-3f);
      } else {
        EXPECT_GE(difference, 0.05f) << static_cast<int>(wrong);
      }
    }
  }
}

TEST(MedusaHeadsOfAModelTest, TheTargetsVocabularyKeepsItsCap) {
  const Golden golden = ReadGolden("medusa_v2");
  Loaded loaded(golden, "medusa_v2");
  loaded.model.soft_cap = 2;
  auto heads = MedusaHeads::Load(FolderOf("medusa_v2"), loaded.model);
  ASSERT_TRUE(heads.ok()) << heads.status();
  loaded.heads = *std::move(heads);
  std::vector<Row> capped = golden.logits[0];
  for (Row& row : capped) {
    for (float& value : row) value = 2 * std::tanh(value / 2);
  }
  EXPECT_LE(Difference(loaded.Run(golden.hidden)[0], capped), 1e-3f);
}

TEST(MedusaHeadsOfAModelTest, AreDescribed) {
  const auto describe = [](const std::string& kind) {
    return Loaded(ReadGolden(kind), kind).heads->description();
  };
  EXPECT_THAT(describe("medusa_v1"),
              HasSubstr("3 Medusa heads (medusa) of 1 blocks with vocabularies "
                        "of their own"));
  EXPECT_THAT(describe("medusa_v2"), HasSubstr("the target's vocabulary"));
  EXPECT_THAT(describe("vllm_shared"), HasSubstr("one vocabulary"));
}

// A copy of a golden's folder that a test changes.
std::string CopyOf(const std::string& kind, const std::string& name) {
  const std::string folder = nacre::testing::TestFolder(name);
  for (const auto& entry :
       std::filesystem::directory_iterator(FolderOf(kind))) {
    std::filesystem::copy(entry.path(), folder);
  }
  return folder;
}

absl::Status LoadStatus(const std::string& path) {
  const std::unique_ptr<kernels::Backend> backend = NamedBackend("cpu");
  const HeadOnlyModel model(backend.get(), ReadGolden("medusa_v1").target);
  return MedusaHeads::Load(path, model).status();
}

TEST(MedusaHeadsOfAModelTest, AFileOrItsFolder) {
  EXPECT_TRUE(
      LoadStatus(FolderOf("medusa_v1") + "/medusa_lm_head.safetensors").ok());
  const std::string empty = nacre::testing::TestFolder("medusa_empty");
  EXPECT_EQ(LoadStatus(empty).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadStatus(empty + "/none.safetensors").code(),
            absl::StatusCode::kNotFound);
}

// As FasterDecoding publishes them.
TEST(MedusaHeadsOfAModelTest, WhatTorchSavedHoldsTheSame) {
  const std::string folder = nacre::testing::TestFolder("medusa_torch");
  const std::string path = folder + "/medusa_lm_head.pt";
  std::filesystem::copy(NACRE_TEST_DATA "/model/torch_files/medusa_lm_head.pt",
                        folder);
  EXPECT_TRUE(LoadStatus(folder).ok()) << LoadStatus(folder);
  EXPECT_TRUE(LoadStatus(path).ok());
  const auto saved = *Checkpoint::OpenFile(path);
  const auto safe = *Checkpoint::OpenFile(FolderOf("medusa_v1") +
                                          "/medusa_lm_head.safetensors");
  ASSERT_EQ(saved->Names(), safe->Names());
  for (const std::string& name : safe->Names()) {
    SCOPED_TRACE(name);
    const auto one = saved->Find(name);
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_EQ(one->shape, safe->Find(name)->shape);
    EXPECT_TRUE(one->bytes == safe->Find(name)->bytes);
  }
  nacre::testing::WriteFile(path, "PK");
  EXPECT_THAT(std::string(LoadStatus(folder).message()),
              HasSubstr("medusa_lm_head.pt"));
}

TEST(MedusaHeadsOfAModelTest, OfAnotherModelAreRefused) {
  const std::unique_ptr<kernels::Backend> backend = NamedBackend("cpu");
  Golden golden = ReadGolden("medusa_v1");
  golden.target.pop_back();
  const HeadOnlyModel smaller(backend.get(), golden.target);
  auto status = MedusaHeads::Load(FolderOf("medusa_v1"), smaller).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor 0.1.weight has shape [33, 20], the config "
                        "implies [32, 20]"));
  status = MedusaHeads::Load(FolderOf("vllm_own"), smaller).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("token_map has the token id 32, outside the target's "
                        "vocabulary of 32"));
  for (Row& row : golden.target) row.pop_back();
  const HeadOnlyModel narrower(backend.get(), golden.target);
  status = MedusaHeads::Load(FolderOf("medusa_v1"), narrower).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor 0.0.linear.weight has shape [20, 20], the "
                        "config implies [19, 19]"));

  const std::string folder = CopyOf("medusa_v1", "medusa_fingerprint");
  const auto write = [&folder](const std::string& fingerprint) {
    nacre::testing::WriteFile(
        folder + "/nacre_draft.json",
        R"({"target_fingerprint": ")" + fingerprint + "\"}");
  };
  write("f00d");
  EXPECT_TRUE(LoadStatus(folder).ok());
  write("beef");
  EXPECT_EQ(LoadStatus(folder).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(LoadStatus(folder).message()),
              HasSubstr("is of the target beef, the model here is f00d"));
}

TEST(MedusaHeadsOfAModelTest, WhatTheConfigSaysIsChecked) {
  const std::string folder = CopyOf("vllm_shared", "medusa_config");
  const auto status_of = [&folder](const std::string& config) {
    nacre::testing::WriteFile(folder + "/config.json", config);
    return LoadStatus(folder);
  };
  EXPECT_TRUE(status_of("{}").ok());
  for (const char* scale : {"0", "-1", "\"1\"", "1e60"}) {
    const absl::Status status =
        status_of(std::string("{\"logit_scale\": ") + scale + "}");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << scale;
    EXPECT_THAT(std::string(status.message()), HasSubstr("logit_scale"));
  }
  EXPECT_THAT(
      std::string(status_of(R"({"original_lm_head": false})").message()),
      HasSubstr("the vocabulary of head 1 is missing"));
  EXPECT_EQ(status_of("[]").code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace nacre::model
