// What `nacre bench` compares: the list of --methods.

#ifndef TOOLS_BENCH_BENCH_METHODS_H_
#define TOOLS_BENCH_BENCH_METHODS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/inference.pb.h"

namespace nacre::tools {

// One entry: a method, perhaps at a window of its own.
struct BenchMethod {
  std::string name;  // as typed: "sd:4"
  v1::Method method = v1::METHOD_UNSPECIFIED;
  std::optional<uint32_t> window;
  // As of SpeculationOptions; empty: the server's default.
  std::string policy = {};
  v1::Verification verification = v1::VERIFICATION_EXACT;  // ar: always
  std::string tree = {};      // likewise; of ar none
  std::string ablation = {};  // likewise; of pearl only

  bool is_oracle() const;
  // Whether its policy ends chunks by a rule of its own: no law and no
  // simulation knows how long they are.
  bool has_policy_rule() const;
  bool is_ratio() const { return verification == v1::VERIFICATION_RATIO; }
  // Whether it drafts one, where the coordinator lets drafts branch: async
  // unless it names a chain.
  bool has_tree() const;
};

// "ar,sd:4,pearl:6,async": names with an optional window in 1..64, which
// `default_window` fills where there is none (but ar has no window). Also
// pearl-no-pre-verify and pearl-no-post-verify, the ablations.
// INVALID_ARGUMENT: an unknown method, a bad window, a window of ar, an entry
// twice.
absl::StatusOr<std::vector<BenchMethod>> ParseBenchMethods(
    absl::string_view text, std::optional<uint32_t> default_window);

// "constant,svip:h=0.4,c=0.2,oracle": policies as requests name them. A part
// with a value and no name belongs to the policy before. INVALID_ARGUMENT: as
// speculation::ParsePolicySpec, and a policy twice.
absl::StatusOr<std::vector<std::string>> ParseBenchPolicies(
    absl::string_view text);

// Every method with every policy ("sd:4/svip"), ar as it is. Without policies
// the methods.
std::vector<BenchMethod> WithPolicies(const std::vector<BenchMethod>& methods,
                                      const std::vector<std::string>& policies);

// "exact", "ratio", "exact,ratio". INVALID_ARGUMENT: an unknown one, one twice.
absl::StatusOr<std::vector<v1::Verification>> ParseBenchVerifications(
    absl::string_view text);

// Every method with every verification ("sd:4+ratio"), ar as it is.
std::vector<BenchMethod> WithVerifications(
    const std::vector<BenchMethod>& methods,
    const std::vector<v1::Verification>& verifications);

// The methods that `of_methods` lists, as in "sd,async", with every tree of
// "chain,eagle2:k=4,depth=3" ("async@chain"), the others as they are. Without
// trees: all as they are. INVALID_ARGUMENT: an unknown one, one twice, ar.
absl::StatusOr<std::vector<BenchMethod>> WithTrees(
    const std::vector<BenchMethod>& methods, absl::string_view trees,
    absl::string_view of_methods);

}  // namespace nacre::tools

#endif  // TOOLS_BENCH_BENCH_METHODS_H_
