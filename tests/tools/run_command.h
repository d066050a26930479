// Runs a sub-command of `nacre` in this process, and a coordinator's answer for
// those that ask one.

#ifndef TESTS_TOOLS_RUN_COMMAND_H_
#define TESTS_TOOLS_RUN_COMMAND_H_

#include <sstream>
#include <string>
#include <vector>

#include "tests/tools/fake_coordinator.h"
#include "tools/commands.h"

namespace nacre::tools {

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

inline Outcome Nacre(const std::vector<std::string>& args) {
  std::ostringstream out;
  std::ostringstream err;
  const int code = RunNacre(args, Terminal{out, err});
  return {code, out.str(), err.str()};
}

// Answers "one two" in two chunks, with token ids 5, 6, 7.
inline grpc::Status OneTwo(const v1::GenerateRequest& request,
                           grpc::ServerContext*,
                           FakeCoordinator::Writer* writer) {
  v1::GenerateResponse response;
  if (request.output().stream()) {
    response.mutable_chunk()->set_text("one ");
    writer->Write(response);
    response.mutable_chunk()->set_text("two");
    writer->Write(response);
  }
  v1::Complete complete;
  complete.set_text("one two");
  for (const uint32_t id : {5, 6, 7}) complete.add_token_ids(id);
  complete.set_finish_reason(v1::FINISH_REASON_EOS);
  complete.mutable_usage()->set_completion_tokens(3);
  complete.mutable_speculation()->set_method(request.speculation().method());
  if (request.output().trace()) {
    v1::TraceLane* lane = complete.add_trace();
    lane->set_role(v1::WORKER_ROLE_TARGET);
    lane->add_spans()->set_kind(v1::Span::KIND_VERIFY);
    complete.mutable_speculation()->add_step_gap_ns(40000);
  }
  FakeCoordinator::SendComplete(writer, complete);
  return grpc::Status::OK;
}

}  // namespace nacre::tools

#endif  // TESTS_TOOLS_RUN_COMMAND_H_
