// A GliDe draft whose target runs elsewhere: it says, bit by bit, what the same
// draft beside its target says of as many of the target's rows.

#include "model/target_reader.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/json_fields.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/target_rows.h"
#include "tests/model/glide_golden.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

// The goldens' files do not say how many heads the target keeps: beside it the
// draft finds out.
std::string FolderThatSaysHeads(const std::string& kind) {
  const std::string folder = CopyOfGlide(kind, "target_reader_" + kind);
  const std::string path = folder + "/config.json";
  Json json = Json::parse(nacre::testing::ReadFile(path));
  json["large_num_key_value_heads"] = 2;
  nacre::testing::WriteFile(path, json.dump());
  return folder;
}

constexpr const char* kTargetFields[] = {"large_num_attention_heads",
                                         "large_num_key_value_heads",
                                         "large_head_dim", "large_hidden_size"};

// A folder of a GliDe draft whose config.json says nothing of a target.
void ForgetTarget(const std::string& folder) {
  const std::string path = folder + "/config.json";
  Json json = Json::parse(nacre::testing::ReadFile(path));
  for (const char* field : kTargetFields) json.erase(field);
  json["architectures"] = {"LlamaForCausalLM"};
  nacre::testing::WriteFile(path, json.dump());
}

// And neither do its tensors: a plain Llama.
void MakePlain(const std::string& folder) {
  ForgetTarget(folder);
  const std::string path = folder + "/model.safetensors";
  nacre::testing::WriteFile(
      path, absl::StrReplaceAll(nacre::testing::ReadFile(path),
                                {{".cross_attn.", ".other_attn."}}));
}

// The draft of a pair, as a model of its own.
struct Remote {
  Remote(const std::string& backend_name, const std::string& kind)
      : backend(NamedBackend(backend_name)) {
    const std::string folder = FolderThatSaysHeads(kind);
    auto loaded = LoadModel(folder, backend.get(), {.kv_cache_bytes = 1 << 18});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    model = *std::move(loaded);
  }

  std::vector<LogitRow> Rows(const SequenceRows& rows) {
    const auto logits = model->Forward({&rows, 1});
    EXPECT_TRUE(logits.ok()) << logits.status();
    const size_t vocab = static_cast<size_t>(model->info().vocab_size);
    std::vector<LogitRow> result;
    for (size_t at = 0; at < logits->size(); at += vocab) {
      result.emplace_back(logits->begin() + at, logits->begin() + at + vocab);
    }
    return result;
  }

  // As GlidePair::Run, beside what has come of the target.
  std::vector<LogitRow> Run(const Ids& prompt, const GlideCase& each,
                            TargetSequence* target) {
    const auto sequence = *model->NewTreeSequence(40, GlidePair::kSlots, {});
    SequenceRows rows = {sequence.get(), prompt,
                         static_cast<int>(prompt.size())};
    rows.target = target;
    std::vector<LogitRow> all = Rows(rows);
    for (size_t i = 0; i < each.fed.size(); ++i) {
      const int32_t slot = static_cast<int32_t>(i);
      const TreeNode node = {slot, slot == 0 ? kNoSlot : slot - 1,
                             sequence->length() + slot};
      rows.token_ids = {&each.fed[i], 1};
      rows.nodes = {&node, 1};
      rows.num_logits = 1;
      const auto said = Rows(rows);
      all.insert(all.end(), said.begin(), said.end());
    }
    return all;
  }

  // What has come when so many rows have, `chunk` at a time.
  std::unique_ptr<TargetSequence> Seen(GlidePair* pair, const Sequence& kept,
                                       int count, int chunk) {
    auto target = *model->row_reader()->NewTargetSequence(40);
    std::vector<float> rows;
    for (int at = 0; at < count; at += chunk) {
      KeptRows(pair->target.get())
          .Read(kept, model->row_reader()->shape(), at,
                std::min(chunk, count - at), &rows);
      target->Append(rows);
    }
    EXPECT_EQ(target->length(), count);
    return target;
  }

  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<LanguageModel> model;
};

class TargetReaderTest : public DraftBackendTest {};

TEST_P(TargetReaderTest, SaysWhatTheDraftBesideItsTargetSays) {
  for (const std::string kind : kGlideKinds) {
    SCOPED_TRACE(kind);
    const GlideGolden golden = ReadGlideGolden(kind);
    GlidePair pair(GetParam(), GlideFolder(kind));
    Remote remote(GetParam(), kind);
    const auto kept = pair.Fed(golden.prompt);
    int num_cases = 0;
    for (const GlideCase& each : golden.cases) {
      if (each.first != 0) continue;  // a draft elsewhere sees the whole text
      ++num_cases;
      const auto whole = pair.Run(golden.prompt, each, *kept);
      for (const int chunk : {1, 3, 40}) {
        const auto seen = remote.Seen(&pair, *kept, each.target, chunk);
        EXPECT_EQ(remote.Run(golden.prompt, each, seen.get()), whole)
            << each.target << " rows, " << chunk << " at a time";
      }
    }
    EXPECT_GE(num_cases, 3);
  }
}

TEST_P(TargetReaderTest, SeesNothingWithoutRows) {
  const GlideGolden golden = ReadGlideGolden("one_layer");
  GlidePair pair(GetParam(), GlideFolder("one_layer"));
  Remote remote(GetParam(), "one_layer");
  const auto kept = pair.Fed(golden.prompt);
  GlideCase each = golden.cases.front();
  each.target = 0;
  each.first = 0;
  const auto said = pair.Run(golden.prompt, each, *kept);
  EXPECT_EQ(remote.Run(golden.prompt, each, nullptr), said);
  const auto empty = *remote.model->row_reader()->NewTargetSequence(40);
  EXPECT_EQ(remote.Run(golden.prompt, each, empty.get()), said);
  each.target = static_cast<int>(golden.prompt.size());
  EXPECT_NE(pair.Run(golden.prompt, each, *kept), said) << "rows do nothing";
}

// A step of several sequences, each with what has come for it.
TEST_P(TargetReaderTest, ARowDoesNotDependOnTheOthers) {
  const GlideGolden golden = ReadGlideGolden("two_layers");
  GlidePair pair(GetParam(), GlideFolder("two_layers"));
  Remote remote(GetParam(), "two_layers");
  const auto kept = pair.Fed(golden.prompt);
  std::vector<std::vector<LogitRow>> alone;
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<std::unique_ptr<TargetSequence>> seen;
  std::vector<SequenceRows> batch;
  for (const int count : {0, 5, 1, 3}) {
    seen.push_back(remote.Seen(&pair, *kept, count, 2));
    const auto single = *remote.model->NewSequence(40);
    SequenceRows rows = {single.get(), golden.prompt, 1};
    rows.target = seen.back().get();
    alone.push_back(remote.Rows(rows));
    sequences.push_back(*remote.model->NewSequence(40));
    rows.sequence = sequences.back().get();
    batch.push_back(rows);
  }
  const auto logits = *remote.model->Forward(batch);
  const size_t vocab = logits.size() / batch.size();
  for (size_t i = 0; i < batch.size(); ++i) {
    const auto row = logits.subspan(i * vocab, vocab);
    EXPECT_EQ(LogitRow(row.begin(), row.end()), alone[i].front()) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, TargetReaderTest,
                         ::testing::Values(NACRE_DRAFT_BACKENDS),
                         NameOfBackend);

TEST(TargetReadersTest, WhatPassesTheReservedLengthIsLeftOut) {
  const GlideGolden golden = ReadGlideGolden("one_layer");
  GlidePair pair("cpu", GlideFolder("one_layer"));
  Remote remote("cpu", "one_layer");
  const auto kept = pair.Fed(golden.prompt);
  ASSERT_GE(kept->length(), 4);
  const auto target = *remote.model->row_reader()->NewTargetSequence(3);
  std::vector<float> rows;
  KeptRows(pair.target.get())
      .Read(*kept, remote.model->row_reader()->shape(), 0, 4, &rows);
  target->Append(rows);
  EXPECT_EQ(target->length(), 3);
  target->Append(rows);
  EXPECT_EQ(target->length(), 3);
}

TEST(TargetReadersTest, NoRoomIsSaid) {
  Remote remote("cpu", "one_layer");
  std::vector<std::unique_ptr<TargetSequence>> all;
  absl::Status status;
  for (int i = 0; i < 100000 && status.ok(); ++i) {
    auto next = remote.model->row_reader()->NewTargetSequence(1000);
    status = next.status();
    if (next.ok()) all.push_back(*std::move(next));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(remote.model->info().description,
              HasSubstr("a GliDe draft over the target's last 1 layers"));
}

TEST(TargetReadersTest, RunsInOnePiece) {
  EXPECT_TRUE(TargetReader::Check(/*is_split=*/false).ok());
  const absl::Status status = TargetReader::Check(/*is_split=*/true);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.ToString(), HasSubstr("not split over several devices"));
}

// What is told of it before it is loaded.
TEST(TargetReadersTest, NeedsRoomForItsTargetToo) {
  const auto needs_of = [](const std::string& folder) {
    const auto backend = NamedBackend("cpu");
    MemoryNeeds needs;
    ModelOptions options = {.kv_cache_bytes = 1 << 18};
    options.admit = [&](const MemoryNeeds& told) {
      needs = told;
      return absl::OkStatus();
    };
    EXPECT_TRUE(LoadModel(folder, backend.get(), options).ok());
    return needs;
  };
  const std::string folder = FolderThatSaysHeads("one_layer");
  const MemoryNeeds with = needs_of(folder);
  MakePlain(folder);
  const MemoryNeeds without = needs_of(folder);
  EXPECT_GT(with.weights, without.weights);
  EXPECT_GT(with.kv_cache, without.kv_cache);
}

absl::Status StatusOfLoading(const std::string& folder) {
  const auto backend = NamedBackend("cpu");
  return LoadModel(folder, backend.get(), {.kv_cache_bytes = 1 << 18}).status();
}

// Run as a plain Llama, such a draft would seldom be right, and no message
// would say why.
TEST(TargetReadersTest, ADraftWithoutWhatItReadsIsNoLlama) {
  const std::string folder = FolderThatSaysHeads("one_layer");
  ForgetTarget(folder);
  absl::Status status = StatusOfLoading(folder);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(status.ToString(),
              HasSubstr("the checkpoint holds "
                        "model.layers.0.cross_attn.o_proj.weight, of a GliDe "
                        "draft, but large_num_attention_heads of its config "
                        "is missing"));
  MakePlain(folder);
  EXPECT_TRUE(StatusOfLoading(folder).ok());
  for (const char* card : {R"({"method": "distill"})", R"({"method": 7})", "{",
                           R"({"method": "glider"})", "{}"}) {
    nacre::testing::WriteFile(folder + "/nacre_draft.json", card);
    EXPECT_TRUE(StatusOfLoading(folder).ok()) << card;
  }
  nacre::testing::WriteFile(folder + "/nacre_draft.json",
                            R"({"method": "glide:steps=5"})");
  status = StatusOfLoading(folder);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(status.message(),
            folder +
                "/config.json: large_num_attention_heads is missing, but "
                "nacre_draft.json says that it is a GliDe draft");
}

// Any field of a target, or the name of the architecture, is enough.
TEST(TargetReadersTest, ADraftThatSaysHalfOfItIsNoLlama) {
  for (const char* left : kTargetFields) {
    const std::string folder = FolderThatSaysHeads("one_layer");
    MakePlain(folder);
    const std::string path = folder + "/config.json";
    Json json = Json::parse(nacre::testing::ReadFile(path));
    json[left] = 8;
    nacre::testing::WriteFile(path, json.dump());
    const absl::Status status = StatusOfLoading(folder);
    // All that is left says how many heads ask: then their size is missing.
    const bool has_heads = left == std::string("large_num_attention_heads");
    EXPECT_EQ(status.message(),
              absl::StrCat(path, ": ",
                           has_heads ? "large_hidden_size" : kTargetFields[0],
                           " is missing"));
  }
  const std::string folder = FolderThatSaysHeads("one_layer");
  MakePlain(folder);
  const std::string path = folder + "/config.json";
  Json json = Json::parse(nacre::testing::ReadFile(path));
  json["architectures"] = {"smallLlamaForCausalLM"};
  nacre::testing::WriteFile(path, json.dump());
  EXPECT_EQ(StatusOfLoading(folder).message(),
            path + ": large_num_attention_heads is missing");
}

TEST(TargetReadersTest, ErrorsOfItsTensorsNameTheFolder) {
  const std::string folder = FolderThatSaysHeads("one_layer");
  const std::string path = folder + "/model.safetensors";
  const std::string file = nacre::testing::ReadFile(path);
  for (const char* name : {"q_proj", "o_proj"}) {
    const std::string tensor = absl::StrCat(".cross_attn.", name);
    nacre::testing::WriteFile(
        path, absl::StrReplaceAll(
                  file, {{tensor, absl::StrCat(".other_attn.", name)}}));
    const absl::Status status = StatusOfLoading(folder);
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::AllOf(::testing::StartsWith(folder + ": "),
                                 HasSubstr(tensor)));
  }
}

TEST(TargetReadersTest, AModelThatIsNoneReadsNothing) {
  GlidePair pair("cpu", GlideFolder("one_layer"));
  EXPECT_EQ(pair.target->row_reader(), nullptr);
}

}  // namespace
}  // namespace nacre::model
