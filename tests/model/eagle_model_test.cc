// Each published kind of file against PyTorch
// (tests/data/model/make_eagle_goldens.py), trees of guesses, and what is
// refused.

#include "model/eagle_model.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/json_fields.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/load_model.h"
#include "tests/model/eagle_golden.h"
#include "tests/model/named_backend.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr int kSlots = 8;
constexpr char kIds[] = "eagle_aux_hidden_state_layer_ids";

// The target and a draft of it.
struct Pair {
  Pair(const std::string& backend_name, const std::string& folder)
      : backend(NamedBackend(backend_name)) {
    auto loaded = LoadModel(EagleFolder("target"), backend.get(),
                            {.kv_cache_bytes = 1 << 18});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    target = *std::move(loaded);
    auto draft = EagleModel::Load(folder, target.get());
    status = draft.status();
    if (draft.ok()) eagle = *std::move(draft);
  }

  // The target's features of all tokens, [tokens, all taps].
  std::vector<float> Features(const Ids& ids) {
    const auto sequence = *target->NewSequence(static_cast<int>(ids.size()));
    const SequenceRows rows = {sequence.get(), ids, 1};
    EXPECT_TRUE(target->Forward({&rows, 1}).ok());
    const size_t width = static_cast<size_t>(target->info().hidden_size);
    std::vector<float> all;
    for (size_t row = 0; row < ids.size(); ++row) {
      for (size_t tap = 0; tap < eagle->taps().size(); ++tap) {
        const auto own = target->features(static_cast<int>(tap));
        EXPECT_EQ(own.size(), ids.size() * width);
        all.insert(all.end(), own.begin() + row * width,
                   own.begin() + (row + 1) * width);
      }
    }
    return all;
  }

  std::vector<LogitRow> Rows(const FeatureRows& rows) {
    const auto logits = eagle->Forward({&rows, 1});
    EXPECT_TRUE(logits.ok()) << logits.status();
    const size_t vocab = static_cast<size_t>(target->info().vocab_size);
    std::vector<LogitRow> result;
    for (size_t at = 0; at < logits->size(); at += vocab) {
      result.emplace_back(logits->begin() + at, logits->begin() + at + vocab);
    }
    return result;
  }

  // All that the golden has: `chunk` rows of the prompt at a time, then what it
  // was fed. `shift` 1: a token stands beside the features before it.
  std::vector<LogitRow> Run(const EagleGolden& golden, size_t chunk = 100,
                            size_t shift = 1) {
    const std::vector<float> features = Features(golden.prompt);
    const size_t width = static_cast<size_t>(eagle->feature_size());
    const size_t count = golden.prompt.size() - 1;
    const auto sequence = *eagle->NewSequence(40, kSlots);
    std::vector<LogitRow> all;
    for (size_t at = 0; at < count; at += chunk) {
      const size_t rows = std::min(chunk, count - at);
      const auto said =
          Rows({sequence.get(),
                absl::MakeConstSpan(golden.prompt).subspan(at + shift, rows),
                absl::MakeConstSpan(features).subspan(at * width, rows * width),
                {},
                static_cast<int>(rows)});
      all.insert(all.end(), said.begin(), said.end());
    }
    for (size_t i = 0; i < golden.fed.size(); ++i) {
      const int32_t slot = static_cast<int32_t>(i);
      const TreeNode node = {slot, slot == 0 ? kNoSlot : slot - 1,
                             static_cast<int>(count + i)};
      const auto said =
          Rows({sequence.get(), {&golden.fed[i], 1}, {}, {&node, 1}, 1});
      all.insert(all.end(), said.begin(), said.end());
    }
    EXPECT_EQ(sequence->length(), static_cast<int>(count));
    return all;
  }

  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<LanguageModel> target;
  absl::Status status;
  std::unique_ptr<EagleModel> eagle;
};

class EagleModelTest : public DraftBackendTest {};

TEST_P(EagleModelTest, EachKindSaysWhatPyTorchSays) {
  for (const std::string kind : kEagleKinds) {
    SCOPED_TRACE(kind);
    const EagleGolden golden = ReadEagleGolden(kind);
    Pair pair(GetParam(), EagleFolder(kind));
    ASSERT_TRUE(pair.status.ok()) << pair.status;
    EXPECT_LE(LargestDifference(pair.Run(golden), golden.All()),
              DraftTolerance(GetParam()));
  }
}

TEST_P(EagleModelTest, ChunksOfAPromptGiveTheSameBits) {
  for (const std::string kind : {"specforge", "eagle1", "hass"}) {
    SCOPED_TRACE(kind);
    const EagleGolden golden = ReadEagleGolden(kind);
    Pair pair(GetParam(), EagleFolder(kind));
    const auto whole = pair.Run(golden);
    for (const size_t chunk : {1, 3}) {
      EXPECT_EQ(pair.Run(golden, chunk), whole) << chunk;
    }
  }
}

// Guesses beside each other: each has the bits of the chain that its path
// spells, whatever else is in the call.
TEST_P(EagleModelTest, ATreeHasTheBitsOfItsPaths) {
  for (const std::string kind : {"speculators", "eagle1", "hass"}) {
    SCOPED_TRACE(kind);
    EagleGolden golden = ReadEagleGolden(kind);
    Pair pair(GetParam(), EagleFolder(kind));
    // 3 after the prompt, and 5; then 8 after 3, 9 after 5 and 8 after 5.
    const auto features = pair.Features(golden.prompt);
    const int count = static_cast<int>(golden.prompt.size()) - 1;
    const auto sequence = *pair.eagle->NewSequence(40, kSlots);
    const auto other = *pair.eagle->NewSequence(40, kSlots);
    const FeatureRows prompt = {
        sequence.get(),
        absl::MakeConstSpan(golden.prompt).subspan(1),
        absl::MakeConstSpan(features).first(
            static_cast<size_t>(count * pair.eagle->feature_size())),
        {},
        1};
    FeatureRows beside = prompt;
    beside.sequence = other.get();
    const FeatureRows both[] = {beside, prompt};
    ASSERT_TRUE(pair.eagle->Forward(both).ok());
    const Ids first = {3, 5};
    const std::vector<TreeNode> firsts = {{6, kNoSlot, count},
                                          {2, kNoSlot, count}};
    const auto said = pair.Rows({sequence.get(), first, {}, firsts, 2});
    const Ids second = {8, 9, 8};
    const std::vector<TreeNode> seconds = {
        {0, 6, count + 1}, {1, 2, count + 1}, {7, 2, count + 1}};
    const auto deeper = pair.Rows({sequence.get(), second, {}, seconds, 3});
    const std::vector<std::vector<LogitRow>> paths = {
        {said[0], deeper[0]}, {said[1], deeper[1]}, {said[1], deeper[2]}};
    const std::vector<Ids> fed = {{3, 8}, {5, 9}, {5, 8}};
    for (size_t i = 0; i < paths.size(); ++i) {
      golden.fed = fed[i];
      const auto chain = pair.Run(golden);
      const std::vector<LogitRow> last(chain.end() - 2, chain.end());
      EXPECT_EQ(last, paths[i]) << i;
    }
    EXPECT_EQ(sequence->length(), count);
    sequence->Clear();
    EXPECT_EQ(sequence->length(), 0);
    EXPECT_EQ(pair.Rows(prompt).size(), 1u) << "from the start again";
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, EagleModelTest,
                         ::testing::Values(NACRE_DRAFT_BACKENDS),
                         NameOfBackend);

// What a loader may get wrong, said as a config that says so: the logits are
// far from PyTorch's.
TEST(EagleGoldensTest, TellWrongVariantsApart) {
  struct Wrong {
    const char* what;
    const char* kind;
    std::function<void(Json*)> change;
  };
  const std::vector<Wrong> all = {
      {"outputs taken for inputs", "specforge",
       [](Json* json) {
         (*json)[kIds] = (*json)["eagle_config"][kIds];
         (*json)["eagle_config"].erase(kIds);
       }},
      {"inputs taken for outputs", "speculators_normed",
       [](Json* json) {
         (*json)["eagle_config"][kIds] = (*json)[kIds];
         json->erase(kIds);
       }},
      {"other layers than the usual ones", "safeailab",
       [](Json* json) {
         (*json)[kIds] = {3, 5, 6};
       }},
      {"layers in another order", "safeailab",
       [](Json* json) {
         (*json)[kIds] = {5, 4, 2};
       }},
      {"a normed residual", "safeailab",
       [](Json* json) { (*json)["norm_before_residual"] = true; }},
      {"a raw residual", "speculators",
       [](Json* json) { (*json)["norm_before_residual"] = false; }},
      {"the default of others", "speculators",
       [](Json* json) { json->erase("speculators_version"); }},
      {"raw output fed back", "specforge",
       [](Json* json) { (*json)["norm_output"] = false; }},
      {"normed output fed back", "modelopt",
       [](Json* json) { (*json)["norm_output"] = true; }},
      {"no window", "speculators",
       [](Json* json) {
         (*json)["transformer_layer_config"]["layer_types"] = {
             "full_attention"};
       }},
      {"rope that is not stretched", "modelopt",
       [](Json* json) { json->erase("rope_scaling"); }},
      {"another base of rope", "eagle1",
       [](Json* json) { (*json)["rope_theta"] = 10000.0; }},
  };
  for (const Wrong& wrong : all) {
    SCOPED_TRACE(wrong.what);
    const std::string folder = CopyOfEagle(wrong.kind, "eagle_wrong");
    Json json = Json::parse(nacre::testing::ReadFile(folder + "/config.json"));
    wrong.change(&json);
    nacre::testing::WriteFile(folder + "/config.json", json.dump());
    Pair pair("cpu", folder);
    ASSERT_TRUE(pair.status.ok()) << pair.status;
    const EagleGolden golden = ReadEagleGolden(wrong.kind);
    EXPECT_GE(LargestDifference(pair.Run(golden), golden.All()), 0.02f);
  }
}

// Likewise as names of tensors: norms for each other's rows.
TEST(EagleGoldensTest, TellTheNormsOfInputsApart) {
  const std::string folder = CopyOfEagle("hass", "eagle_norms");
  const std::string path = folder + "/model.safetensors";
  std::string file = nacre::testing::ReadFile(path);
  // Names in the header, of which the values follow in its order.
  const std::string embedding = "\"embedding_layernorm.weight\"";
  const std::string hidden = "\"hidden_states_layernorm.weight\"";
  const size_t first = file.find(embedding);
  const size_t second = file.find(hidden);
  ASSERT_LT(first, second);
  ASSERT_NE(second, std::string::npos);
  file.replace(second, hidden.size(), embedding);
  file.replace(first, embedding.size(), hidden);
  nacre::testing::WriteFile(path, file);
  Pair pair("cpu", folder);
  ASSERT_TRUE(pair.status.ok()) << pair.status;
  const EagleGolden golden = ReadEagleGolden("hass");
  EXPECT_GE(LargestDifference(pair.Run(golden), golden.All()), 0.02f);
}

TEST(EagleGoldensTest, TellTokensBesideTheirOwnFeatures) {
  const EagleGolden golden = ReadEagleGolden("safeailab");
  Pair pair("cpu", EagleFolder("safeailab"));
  EXPECT_GE(LargestDifference(pair.Run(golden, 100, 0), golden.All()), 0.02f);
}

TEST(EagleModelsTest, AreDescribed) {
  const auto describe = [](const std::string& kind) {
    return Pair("cpu", EagleFolder(kind)).eagle->description();
  };
  EXPECT_THAT(describe("safeailab"),
              HasSubstr("EAGLE-3 over what layers 2, 4, 5 are given"));
  EXPECT_THAT(describe("specforge"), HasSubstr("layers 2, 4, 7"));
  EXPECT_THAT(describe("specforge"), HasSubstr("24 of 40 tokens"));
  EXPECT_THAT(describe("eagle1"),
              HasSubstr("EAGLE-1 over the last hidden states"));
  EXPECT_EQ(Pair("cpu", EagleFolder("speculators")).eagle->max_depth(), 3);
  EXPECT_EQ(Pair("cpu", EagleFolder("safeailab")).eagle->max_depth(), 7);
  EXPECT_EQ(Pair("cpu", EagleFolder("eagle1")).eagle->max_depth(), 5);
  EXPECT_EQ(Pair("cpu", EagleFolder("speculators_first")).eagle->max_depth(),
            4);
}

TEST(EagleModelsTest, ASequenceThatFindsNoRoomIsRefused) {
  Pair pair("cpu", EagleFolder("safeailab"));
  EXPECT_EQ(pair.eagle->NewSequence(1 << 20, kSlots).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// Of a folder whose config.json is changed, or replaced.
std::string Refusal(const std::string& kind,
                    const std::function<void(Json*)>& change) {
  const std::string folder = CopyOfEagle(kind, "eagle_refused");
  Json json = Json::parse(nacre::testing::ReadFile(folder + "/config.json"));
  change(&json);
  nacre::testing::WriteFile(folder + "/config.json", json.dump());
  return std::string(Pair("cpu", folder).status.message());
}

TEST(EagleModelsTest, WhatTheConfigSaysOfTensorsIsChecked) {
  EXPECT_THAT(Refusal("safeailab",
                      [](Json* json) { (*json)["draft_vocab_size"] = 23; }),
              HasSubstr("tensor lm_head.weight has shape [24, 20], the config "
                        "implies [23, 20]"));
  EXPECT_THAT(Refusal("safeailab",
                      [](Json* json) {
                        (*json)[kIds] = {1, 2};
                      }),
              HasSubstr("tensor fc.weight has shape [20, 60], the config "
                        "implies [20, 40]"));
  EXPECT_THAT(
      Refusal("modelopt", [](Json* json) { (*json)["draft_vocab_size"] = 39; }),
      HasSubstr("no tensor d2t says which tokens those are"));
  EXPECT_THAT(Refusal("speculators",
                      [](Json* json) { (*json)["target_hidden_size"] = 24; }),
              HasSubstr("is 24, that of the target 20"));
  EXPECT_THAT(
      Refusal("eagle1", [](Json* json) { (*json)["intermediate_size"] = 35; }),
      HasSubstr("layers.0.mlp.gate_proj.weight has shape [36, 20]"));
  EXPECT_THAT(
      Refusal("hass", [](Json* json) { (*json)["add_para_norm"] = false; }),
      HasSubstr("add_para_norm is false, but embedding_layernorm.weight is "
                "there"));
  EXPECT_THAT(Refusal("speculators_first",
                      [](Json* json) { (*json)["fusion_bias"] = false; }),
              HasSubstr("fusion_bias is false, but fc.bias is there"));
  EXPECT_THAT(Refusal("safeailab",
                      [](Json* json) { (*json)["attention_bias"] = true; }),
              HasSubstr("tensor layer.self_attn.q_proj.bias is not in"));
  EXPECT_THAT(Refusal("eagle1", [](Json* json) { *json = Json::object(); }),
              HasSubstr("config.json: hidden_size is missing"));
}

TEST(EagleModelsTest, FilesThatAreNoneAreRefused) {
  const auto status = [](const std::string& path) {
    return Pair("cpu", path).status;
  };
  const std::string empty = nacre::testing::TestFolder("eagle_empty");
  EXPECT_EQ(status(empty).code(), absl::StatusCode::kNotFound);
  nacre::testing::WriteFile(empty + "/pytorch_model.bin", "PK");
  EXPECT_THAT(std::string(status(empty).message()),
              HasSubstr("pytorch_model.bin"));
  EXPECT_THAT(std::string(status(EagleFolder("target")).message()),
              HasSubstr("is none of an EAGLE-1 draft of one Llama layer"));
  const std::string folder = CopyOfEagle("eagle1", "eagle_fingerprint");
  nacre::testing::WriteFile(folder + "/nacre_draft.json",
                            R"({"target_fingerprint": "beef"})");
  EXPECT_THAT(std::string(status(folder).message()),
              HasSubstr("of the target beef"));
}

// Token ids in place of offsets, and offsets that lead astray.
TEST(EagleModelsTest, WhatAVocabularyLeadsToIsChecked) {
  const auto status = [](std::vector<int64_t> offsets) {
    const std::string folder = CopyOfEagle("safeailab", "eagle_d2t");
    const std::string path = folder + "/model.safetensors";
    std::string file = nacre::testing::ReadFile(path);
    uint64_t header_size;
    std::memcpy(&header_size, file.data(), sizeof(header_size));
    const Json header = Json::parse(file.substr(8, header_size));
    const size_t data = header["d2t"]["data_offsets"][0].get<size_t>();
    std::memcpy(file.data() + 8 + header_size + data, offsets.data(),
                offsets.size() * sizeof(int64_t));
    nacre::testing::WriteFile(path, file);
    return std::string(Pair("cpu", folder).status.message());
  };
  EXPECT_EQ(status(std::vector<int64_t>(24, 16)), "");
  EXPECT_THAT(status(std::vector<int64_t>(24, 17)),
              HasSubstr("tensor d2t has the offset 17 at 23, which leads "
                        "outside the target's vocabulary of 40"));
  EXPECT_THAT(status({-1}), HasSubstr("tensor d2t has the offset -1 at 0"));
  std::vector<int64_t> twice(24, 0);
  twice[3] = 1;
  EXPECT_THAT(status(twice), HasSubstr("leads twice to the token 4"));
}

}  // namespace
}  // namespace nacre::model
