#include "common/rpc/bearer_tokens.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/rpc/pem_files.h"
#include "common/status_macros.h"

namespace nacre::rpc {
namespace {

constexpr size_t kMinTokenBytes = 16;

template <typename Digest>
Digest Sha256(absl::string_view text) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         digest.data());
  return digest;
}

bool IsTokenText(absl::string_view text) {
  for (const char c : text) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

absl::Status BadLine(int number, absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat("line ", number, ": ", problem));
}

// When it was changed, and which file it is: a replaced one counts as changed.
std::array<int64_t, 4> StampOf(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return {};
  return {static_cast<int64_t>(info.st_ino), info.st_mtim.tv_sec,
          info.st_mtim.tv_nsec, info.st_size};
}

}  // namespace

absl::StatusOr<std::vector<NamedToken>> ParseTokens(absl::string_view text) {
  std::vector<NamedToken> tokens;
  absl::flat_hash_set<std::string> seen;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    NamedToken named;
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) {
      named.token = std::string(line);
      const auto digest = Sha256<std::array<uint8_t, 32>>(line);
      named.name = absl::StrCat(
          "token-", absl::BytesToHexString(absl::string_view(
                        reinterpret_cast<const char*>(digest.data()), 4)));
    } else {
      named.name =
          std::string(absl::StripAsciiWhitespace(line.substr(0, colon)));
      named.token =
          std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
      if (named.name.empty()) return BadLine(number, "the name is empty");
    }
    if (named.token.size() < kMinTokenBytes) {
      return BadLine(
          number, absl::StrCat("the token has ", named.token.size(),
                               " bytes, must have at least ", kMinTokenBytes));
    }
    if (!IsTokenText(named.token)) {
      return BadLine(number, "the token has characters other than ! to ~");
    }
    if (!seen.insert(named.token).second) {
      return BadLine(number, "the token is there twice");
    }
    tokens.push_back(std::move(named));
  }
  if (tokens.empty()) return absl::InvalidArgumentError("there is no token");
  return tokens;
}

absl::StatusOr<std::vector<NamedToken>> ReadTokens(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  std::stringstream content;
  if (file) content << file.rdbuf();
  if (!file) {
    const int error = errno;
    const std::string message = absl::StrCat("cannot read the tokens of ", path,
                                             ": ", std::strerror(error));
    return error == EACCES ? absl::PermissionDeniedError(message)
                           : absl::NotFoundError(message);
  }
  absl::StatusOr<std::vector<NamedToken>> tokens = ParseTokens(content.str());
  if (!tokens.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", tokens.status().message()));
  }
  return tokens;
}

absl::StatusOr<std::unique_ptr<BearerTokens>> BearerTokens::Load(
    const std::string& path, absl::Duration reload_period) {
  auto tokens = absl::WrapUnique(new BearerTokens(path));
  NACRE_RETURN_IF_ERROR(tokens->Reload());
  tokens->watcher_.Start(reload_period,
                         [tokens = tokens.get()] { tokens->Look(); });
  return tokens;
}

absl::Status BearerTokens::Reload() {
  NACRE_ASSIGN_OR_RETURN(const std::vector<NamedToken> tokens,
                         ReadTokens(path_));
  const std::string problem = PermissionProblem(path_);
  if (!problem.empty()) spdlog::warn("the token file {}", problem);
  std::vector<Entry> entries;
  entries.reserve(tokens.size());
  for (const NamedToken& named : tokens) {
    entries.push_back({named.name, Sha256<Digest>(named.token)});
  }
  absl::MutexLock lock(&mu_);
  entries_ = std::move(entries);
  return absl::OkStatus();
}

void BearerTokens::Look() {
  const std::array<int64_t, 4> now = StampOf(path_);
  if (now == stamp_) return;
  const bool first = stamp_[0] == -1;
  stamp_ = now;
  const absl::Status status = Reload();
  if (!status.ok()) {
    spdlog::error("the old tokens stay: {}", std::string(status.message()));
  } else if (!first) {
    spdlog::info("new tokens from {}", path_);
  }
}

absl::optional<std::string> BearerTokens::Find(absl::string_view token) const {
  const Digest digest = Sha256<Digest>(token);
  absl::MutexLock lock(&mu_);
  const Entry* found = nullptr;
  // To the end, also after a match.
  for (const Entry& entry : entries_) {
    const bool equal =
        CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0;
    found = equal ? &entry : found;
  }
  if (found == nullptr) return absl::nullopt;
  return found->name;
}

}  // namespace nacre::rpc
