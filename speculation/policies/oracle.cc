#include "speculation/policies/oracle.h"

#include <utility>

#include "common/check.h"

namespace nacre::speculation {
namespace {

class OraclePolicy final : public LengthPolicy {
 public:
  explicit OraclePolicy(std::vector<int32_t> recorded)
      : recorded_(std::move(recorded)) {}

  bool looks_at_token() const override { return true; }

  LengthDecision Decide(const DraftRow& row) override {
    NACRE_CHECK(row.token.has_value(), "the oracle looks at the token");
    const auto index = static_cast<size_t>(row.generated);
    return index < recorded_.size() && recorded_[index] == row.token->token_id
               ? LengthDecision::kContinue
               : LengthDecision::kDiscard;
  }

 private:
  const std::vector<int32_t> recorded_;
};

}  // namespace

std::unique_ptr<LengthPolicy> MakeOraclePolicy(std::vector<int32_t> recorded) {
  return std::make_unique<OraclePolicy>(std::move(recorded));
}

}  // namespace nacre::speculation
