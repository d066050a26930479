#include "common/rpc/own_token.h"

#include <spdlog/spdlog.h>

#include <vector>

#include "absl/memory/memory.h"
#include "common/rpc/bearer_tokens.h"
#include "common/rpc/pem_files.h"
#include "common/status_macros.h"

namespace nacre::rpc {

absl::StatusOr<std::unique_ptr<OwnToken>> OwnToken::Load(
    const std::string& path, absl::Duration reload_period) {
  NACRE_ASSIGN_OR_RETURN(const std::vector<NamedToken> tokens,
                         ReadTokens(path));
  const std::string problem = PermissionProblem(path);
  if (!problem.empty()) spdlog::warn("the token file {}", problem);
  auto own = absl::WrapUnique(new OwnToken(path, tokens.front().token));
  own->watcher_.Start(reload_period, [own = own.get()] { own->Look(); });
  return own;
}

std::string OwnToken::token() const {
  absl::MutexLock lock(&mu_);
  return token_;
}

void OwnToken::Look() {
  const absl::StatusOr<std::vector<NamedToken>> tokens = ReadTokens(path_);
  if (!tokens.ok()) {
    const std::string problem(tokens.status().message());
    if (problem != problem_) spdlog::error("the old token stays: {}", problem);
    problem_ = problem;
    return;
  }
  problem_.clear();
  const std::string& token = tokens->front().token;
  absl::MutexLock lock(&mu_);
  if (token == token_) return;
  token_ = token;
  spdlog::info("a new token from {}", path_);
}

}  // namespace nacre::rpc
