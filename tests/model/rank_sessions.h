// What tests of models on several ranks share: their checkpoints, and sessions
// that use all that a model does.

#ifndef TESTS_MODEL_RANK_SESSIONS_H_
#define TESTS_MODEL_RANK_SESSIONS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/language_model.h"
#include "model/model_options.h"

namespace nacre::model {

using Values = std::vector<float>;

inline constexpr int kVocab = 104;
inline constexpr int kContext = 200;

// Of odd shards: 20 and 13 inputs, 13 rows of the vocabulary. Where weights are
// quantized, of whole groups.
inline std::string ConfigJson(const std::string& architecture,
                              const std::string& weights,
                              const std::string& more = "") {
  const bool has_groups = weights == "int8" || weights == "int4";
  return absl::StrCat(
      R"({"architectures": [")", architecture,
      R"("], "hidden_act": "silu", "hidden_size": 52, "num_hidden_layers": 2,
          "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": )",
      has_groups ? 32 : 10, R"(, "intermediate_size": )",
      has_groups ? 512 : 104, R"(, "vocab_size": )", kVocab,
      R"(, "max_position_embeddings": )", kContext,
      R"(, "rms_norm_eps": 1e-5, "eos_token_id": 2)", more, "}");
}

inline ModelOptions Options() {
  ModelOptions options;
  options.kv_cache_bytes = 1 << 22;
  options.prefix_cache = true;
  return options;
}

inline kernels::BackendOptions Backend(const std::string& kind,
                                       const std::string& weights,
                                       const std::string& kv_type = "f32") {
  kernels::BackendOptions backend;
  backend.kind = kind;
  backend.weights = weights;
  backend.kv_type = kv_type;
  return backend;
}

inline std::vector<int32_t> Tokens(int count, int seed) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back((i * 37 + seed * 11 + i * i) % kVocab);
  }
  return tokens;
}

inline void Append(const absl::StatusOr<absl::Span<const float>>& logits,
                   Values* all) {
  ASSERT_TRUE(logits.ok()) << logits.status();
  all->insert(all->end(), logits->begin(), logits->end());
}

// A prompt in pieces beside steps of another session, a rollback, a tree of
// which a path is kept, and a session that begins with what was shared.
inline Values RunSessions(LanguageModel* model) {
  Values all;
  const std::vector<int32_t> first = Tokens(70, 1), second = Tokens(40, 2);
  const auto piece = [](const std::vector<int32_t>& tokens, size_t begin,
                        size_t count) {
    return absl::MakeConstSpan(tokens).subspan(begin, count);
  };
  auto a = *model->NewTreeSequence(120, 8, {});
  auto b = *model->NewSequence(60);
  Append(model->Forward({{a.get(), piece(first, 0, 33), 1}}), &all);
  Append(model->Forward({{b.get(), piece(second, 0, 5), 5},
                         {a.get(), piece(first, 33, 20), 2}}),
         &all);
  Append(model->Forward({{a.get(), piece(first, 53, 1), 1},
                         {b.get(), piece(second, 5, 1), 1}}),
         &all);
  a->Truncate(50);
  Append(model->Forward({{a.get(), piece(first, 50, 4), 4},
                         {b.get(), piece(second, 6, 3), 1}}),
         &all);
  const std::vector<int32_t> tree = {7, 8, 9, 10};
  const std::vector<TreeNode> nodes = {
      {0, kNoSlot, 54}, {3, 0, 55}, {1, 0, 55}, {2, 1, 56}};
  Append(model->Forward({{.sequence = a.get(),
                          .token_ids = tree,
                          .num_logits = 4,
                          .nodes = nodes}}),
         &all);
  EXPECT_TRUE(a->KeepPath(54, {0, 1, 2}).ok());
  EXPECT_EQ(a->length(), 57);
  Append(model->Forward({{a.get(), piece(first, 60, 2), 2}}), &all);
  EXPECT_EQ(a->KeepPath(100, {5}).code(), absl::StatusCode::kInvalidArgument);
  a->Share(piece(first, 0, 48));
  const auto c = *model->NewSequenceWithPrefix(80, piece(first, 0, 50));
  EXPECT_EQ(c->length(), 48);
  Append(model->Forward({{c.get(), piece(first, 48, 2), 1}}), &all);
  return all;
}

inline double LargestDifference(const Values& a, const Values& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(double{a[i]} - b[i]));
  }
  return largest;
}

inline double Largest(const Values& values) {
  return LargestDifference(values, Values(values.size()));
}

}  // namespace nacre::model

#endif  // TESTS_MODEL_RANK_SESSIONS_H_
