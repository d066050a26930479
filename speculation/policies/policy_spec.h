// Which policy a request asks for, as text: NAME[:key=value,...], for example
// svip:h=0.4 or beta-ts:update=bernoulli,max=20. The table of all policies, the
// parameters that each takes, their ranges and defaults.
//
// Pure.

#ifndef SPECULATION_POLICIES_POLICY_SPEC_H_
#define SPECULATION_POLICIES_POLICY_SPEC_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"

namespace nacre::speculation {

enum class PolicyKind {
  kConstant,
  kHeuristic,
  kConfidence,
  kSvip,
  kBetaTs,
  kCaliTs,
  kDisco,
  kSpecDecPlusPlus,
  kOptimalStatic,
  kOracle,
  kLoad,
};

struct PolicyParameter {
  const char* key;
  double min;
  double max;
  // Absent: it may be left open.
  absl::optional<double> fallback;
  bool is_integer;
  // Where not empty, the values by name: 0, 1, ... instead of numbers.
  std::vector<const char*> choices;
};

// Whether a policy reads a calibration file of the draft worker.
enum class PolicyFile { kNone, kOptional, kRequired };

struct PolicyInfo {
  PolicyKind kind;
  const char* name;
  PolicyFile file;
  // As of its LengthPolicy.
  bool looks_at_token;
  std::vector<PolicyParameter> parameters;
};

// In the order of PolicyKind.
const std::vector<PolicyInfo>& AllPolicies();
const PolicyInfo& InfoOf(PolicyKind kind);

// A valid choice of parameters.
class PolicySpec {
 public:
  // `constant`, of the plan's own length.
  PolicySpec() = default;

  PolicyKind kind() const { return kind_; }
  const char* name() const { return InfoOf(kind_).name; }

  // What was given of it; absent also for a key that it does not have.
  absl::optional<double> Given(absl::string_view key) const;
  // That, or the value of `defaults` (a file's own), or the table's. The
  // parameter has one of them.
  double Value(absl::string_view key,
               const PolicySpec* defaults = nullptr) const;
  // The longest chunk: the parameter `max`, or what fixes the length;
  // kMaxWindow where a file of the draft worker may say. Absent where the
  // coordinator's plan decides alone.
  absl::optional<int> max_length() const;
  // Whether there is a LengthPolicy for it: else the plan decides alone.
  bool has_own_rule() const;
  // Whether it cannot run without a file of the draft worker.
  bool needs_file() const;

  // As it can be parsed, with the parameters that were given, in the table's
  // order.
  std::string text() const;

  bool operator==(const PolicySpec&) const = default;

 private:
  friend absl::StatusOr<PolicySpec> ParsePolicySpec(absl::string_view);

  PolicyKind kind_ = PolicyKind::kConstant;
  // By index into the policy's parameters, ascending.
  std::vector<std::pair<size_t, double>> given_;
};

// "" is `constant`. INVALID_ARGUMENT, naming the value and the limit, of:
// - an unknown policy or key, a key twice;
// - a value that is no number (NaN is none) or out of range.
absl::StatusOr<PolicySpec> ParsePolicySpec(absl::string_view text);

}  // namespace nacre::speculation

#endif  // SPECULATION_POLICIES_POLICY_SPEC_H_
