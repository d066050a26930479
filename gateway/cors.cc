#include "gateway/cors.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/quoted.h"

namespace nacre::gateway {
namespace {

constexpr char kAny[] = "*";
constexpr size_t kMaxAskedBytes = 1024;

// As browsers send it: in lower case, without the port that its scheme has.
bool IsOrigin(const std::string& text) {
  const size_t scheme = text.find("://");
  if (scheme == 0 || scheme == std::string::npos) return false;
  const std::string host = text.substr(scheme + 3);
  return !host.empty() &&
         std::all_of(text.begin(), text.end(),
                     [](char c) {
                       return c > 0x20 && c < 0x7f && !(c >= 'A' && c <= 'Z');
                     }) &&
         host.find_first_of("/?#@,*") == std::string::npos &&
         !(absl::StartsWith(text, "https:") && absl::EndsWith(text, ":443")) &&
         !(absl::StartsWith(text, "http:") && absl::EndsWith(text, ":80"));
}

bool Contains(const std::vector<std::string>& origins,
              const std::string& origin) {
  return std::find(origins.begin(), origins.end(), origin) != origins.end();
}

// Adds headers to an answer.
class CorsReply final : public HttpReply {
 public:
  CorsReply(std::shared_ptr<HttpReply> reply, HttpHeaders added)
      : reply_(std::move(reply)), added_(std::move(added)) {}

  void Send(int status, const HttpHeaders& headers, std::string body) override {
    reply_->Send(status, With(headers), std::move(body));
  }
  void Begin(int status, const HttpHeaders& headers) override {
    reply_->Begin(status, With(headers));
  }
  void Write(absl::string_view bytes) override { reply_->Write(bytes); }
  void End() override { reply_->End(); }
  bool HasRoom() const override { return reply_->HasRoom(); }
  void OnRoom(std::function<void()> on_room) override {
    reply_->OnRoom(std::move(on_room));
  }
  void OnGone(std::function<void()> on_gone) override {
    reply_->OnGone(std::move(on_gone));
  }

 private:
  HttpHeaders With(HttpHeaders headers) const {
    headers.insert(headers.end(), added_.begin(), added_.end());
    return headers;
  }

  const std::shared_ptr<HttpReply> reply_;
  const HttpHeaders added_;
};

// What a browser wants to hear before it sends a request of another origin.
HttpHeaders Allowances(const HttpRequest& request) {
  HttpHeaders headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST"},
                         {"Access-Control-Max-Age", "600"}};
  // Clients of OpenAI's send headers of their own.
  const std::string* const asked =
      request.Find("access-control-request-headers");
  if (asked != nullptr && asked->size() <= kMaxAskedBytes) {
    headers.emplace_back("Access-Control-Allow-Headers", *asked);
  }
  return headers;
}

}  // namespace

absl::Status CheckOrigins(const std::vector<std::string>& origins) {
  for (const std::string& origin : origins) {
    if (origin != kAny && !IsOrigin(origin)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--cors-origin ", Quoted(origin),
                       " is neither * nor SCHEME://HOST[:PORT] as browsers "
                       "send it: in lower case, without a default port"));
    }
  }
  return absl::OkStatus();
}

HttpHeaders CorsHeaders(const std::vector<std::string>& origins,
                        const std::string& origin) {
  if (origins.empty()) return {};
  const bool any = Contains(origins, kAny);
  // Caches must not give the answer for one origin to another.
  HttpHeaders headers;
  if (!any) headers.emplace_back("Vary", "Origin");
  if (any || Contains(origins, origin)) {
    headers.emplace_back("Access-Control-Allow-Origin", any ? kAny : origin);
    headers.emplace_back(
        "Access-Control-Expose-Headers",
        "X-Request-Id, X-Nacre-Ignored, X-Should-Retry, Retry-After");
  }
  return headers;
}

HttpHandler AllowOrigins(std::vector<std::string> origins, HttpHandler inner) {
  if (origins.empty()) return inner;
  return [origins = std::move(origins), inner = std::move(inner)](
             HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
    const std::string* const origin = request.Find("origin");
    HttpHeaders added;
    if (origin != nullptr) {
      added = CorsHeaders(origins, *origin);
    } else if (!Contains(origins, kAny)) {
      added.emplace_back("Vary", "Origin");
    }
    const bool allowed = added.size() > 1;
    auto answer = std::make_shared<CorsReply>(reply, std::move(added));
    if (allowed && request.method == "OPTIONS" &&
        request.Find("access-control-request-method") != nullptr) {
      return answer->Send(200, Allowances(request), "");
    }
    inner(std::move(request), answer);
  };
}

}  // namespace nacre::gateway
