// Generate calls, from the client's side: of one coordinator, or of several in
// turn.

#ifndef TOOLS_GENERATE_GENERATION_CLIENT_H_
#define TOOLS_GENERATE_GENERATION_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/inference.grpc.pb.h"
#include "tools/cluster/security_flags.h"

namespace nacre::tools {

// Thread-safe: calls from several threads run at once.
class GenerationClient {
 public:
  // `addresses`: host:port for clients of a coordinator, or several with commas
  // between. A call that one does not take is made at the next, and an answer
  // that is cut off goes on there. Connects with the first call.
  explicit GenerationClient(const std::string& addresses,
                            ClientSecurity security = {});
  // INVALID_ARGUMENT where they are none, or one is not host:port.
  static absl::Status CheckAddresses(const std::string& addresses);

  // Blocks until the answer is complete: all choices of the request, in their
  // order. `on_chunk` is called on this thread for each piece as it comes, with
  // the choice that it is of. Errors: what Generate returns (inference.proto);
  // DEADLINE_EXCEEDED after `timeout`; CANCELLED after CancelAll; INTERNAL if
  // the answer goes on at another token, or ends without a Complete of each
  // choice, as that of a server without choices does.
  absl::StatusOr<std::vector<v1::Complete>> GenerateChoices(
      const v1::GenerateRequest& request, absl::Duration timeout,
      const std::function<void(uint32_t, const v1::Chunk&)>& on_chunk);

  // The same of a request for one choice.
  absl::StatusOr<v1::Complete> Generate(
      const v1::GenerateRequest& request, absl::Duration timeout,
      const std::function<void(const v1::Chunk&)>& on_chunk);

  // Errors: UNAVAILABLE, DEADLINE_EXCEEDED.
  absl::StatusOr<v1::Model> GetModel(absl::Duration timeout);

  // The token ids of a text that names its special tokens itself: no BOS is
  // added. Errors: what Tokenize returns (inference.proto).
  absl::StatusOr<v1::TokenIds> Tokenize(const std::string& text,
                                        absl::Duration timeout);

  // Cancels running and later calls.
  void CancelAll() ABSL_LOCKS_EXCLUDED(mu_);
  // Takes calls again after that.
  void AllowCalls() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Stub = v1::Inference::Stub;
  using OnResponse = std::function<bool(v1::GenerateResponse)>;

  Stub* NextStub() ABSL_LOCKS_EXCLUDED(mu_);
  // The next one that answers. Errors: CANCELLED after CancelAll;
  // DEADLINE_EXCEEDED; `failure`, the last try's, after `give_up_at`.
  absl::StatusOr<Stub*> AwaitStub(absl::Time deadline, absl::Time give_up_at,
                                  const absl::Status& failure)
      ABSL_LOCKS_EXCLUDED(mu_);
  // One call. `on_response`: false ends it with INTERNAL.
  absl::Status Read(Stub* stub, const v1::GenerateRequest& request,
                    absl::Time deadline, const OnResponse& on_response);
  // `method` of each coordinator until one answers.
  template <typename Method>
  absl::Status Call(absl::Duration timeout, const Method& method);
  template <typename Method>
  absl::Status CallOne(Stub* stub, absl::Time deadline, const Method& method);
  bool Register(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mu_);
  void Unregister(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mu_);

  const ClientSecurity security_;
  std::vector<std::unique_ptr<Stub>> stubs_;
  absl::Mutex mu_;
  size_t turn_ ABSL_GUARDED_BY(mu_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::set<grpc::ClientContext*> running_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::tools

#endif  // TOOLS_GENERATE_GENERATION_CLIENT_H_
