// The flags that say how to generate, shared by `generate` and `bench`.

#ifndef TOOLS_GENERATE_REQUEST_FLAGS_H_
#define TOOLS_GENERATE_REQUEST_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/flag_set.h"
#include "proto/inference.pb.h"

namespace nacre::tools {

// What SpeculationOptions.tree says of a --tree: of static:FILE the list of
// paths that the file holds (docs/trees.md). NOT_FOUND: there is no such file.
absl::StatusOr<std::string> ReadTree(const std::string& tree);

// Unset values are left to the server, which also checks the ranges.
struct RequestFlags {
  std::optional<uint32_t> window;
  std::string policy;
  std::string verification = "exact";
  std::string tree;
  bool suffixes = true;
  std::optional<uint32_t> max_tokens;
  std::optional<float> temperature;
  std::optional<uint32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> frequency_penalty;
  std::optional<float> presence_penalty;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<std::string> stop_token_ids;
  std::vector<std::string> logit_bias;  // each "ID:BIAS"
  std::optional<uint32_t> min_tokens;
  bool ignore_eos = false;
  std::string numerics_id;
  double timeout_s = 600.0;  // of one call

  void Register(FlagSet* flags);

  // INVALID_ARGUMENT: an unknown verification, a timeout that is not > 0, a
  // stop string that is not UTF-8. Also a stop token id or a bias of another
  // form.
  absl::Status Fill(v1::GenerateRequest* request) const;
};

// Messages carry only UTF-8. INVALID_ARGUMENT, naming the flag and the byte.
absl::Status CheckUtf8(absl::string_view name, absl::string_view text);
// The same of a text with another name than a flag's.
absl::Status CheckUtf8Of(absl::string_view what, absl::string_view text);

}  // namespace nacre::tools

#endif  // TOOLS_GENERATE_REQUEST_FLAGS_H_
