#include "coordinator/api/admin_service.h"

#include <string>
#include <utility>
#include <vector>

#include "common/rpc/grpc_status.h"
#include "coordinator/api/attachment.h"
#include "coordinator/api/grpc_peer.h"
#include "coordinator/api/response_convert.h"
#include "coordinator/dispatch/policy_files.h"
#include "telemetry/build_info.h"
#include "wire/hello.h"

namespace nacre::coordinator {
namespace {

grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context,
                               const grpc::Status& status = grpc::Status::OK) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* AdminService::GetServerInfo(
    grpc::CallbackServerContext* context, const v1::GetServerInfoRequest*,
    v1::ServerInfo* response) {
  if (absl::Status refused =
          authenticator_->AuthenticateOperator(PeerOf(*context));
      !refused.ok()) {
    return Done(context, rpc::ToGrpcStatus(refused));
  }
  response->set_version(telemetry::GetBuildInfo().version);
  response->set_protocol_version(wire::kProtocolVersion);
  response->set_running_requests(dispatcher_->sessions().size());
  response->set_queued_requests(dispatcher_->queued().size());
  response->set_draining(dispatcher_->draining());
  const std::vector<WorkerStatus> workers = dispatcher_->workers();
  std::vector<const WorkerInfo*> drafts;
  std::string target;
  for (const WorkerStatus& worker : workers) {
    if (worker.info.role == WorkerRole::kDraft) {
      drafts.push_back(&worker.info);
    } else {
      target = worker.info.fingerprint;
    }
  }
  for (const std::string& name : RunnablePolicies(drafts, target)) {
    response->add_policies(name);
  }
  return Done(context);
}

grpc::ServerUnaryReactor* AdminService::ListWorkers(
    grpc::CallbackServerContext* context, const v1::ListWorkersRequest*,
    v1::ListWorkersResponse* response) {
  if (absl::Status refused =
          authenticator_->AuthenticateOperator(PeerOf(*context));
      !refused.ok()) {
    return Done(context, rpc::ToGrpcStatus(refused));
  }
  for (const v1::WorkerInfo& worker : registry_->ListWorkers()) {
    *response->add_workers() = worker;
  }
  return Done(context);
}

grpc::ServerUnaryReactor* AdminService::ListSessions(
    grpc::CallbackServerContext* context, const v1::ListSessionsRequest*,
    v1::ListSessionsResponse* response) {
  if (absl::Status refused =
          authenticator_->AuthenticateOperator(PeerOf(*context));
      !refused.ok()) {
    return Done(context, rpc::ToGrpcStatus(refused));
  }
  std::vector<SessionStatus> sessions = dispatcher_->sessions();
  for (SessionStatus& queued : dispatcher_->queued()) {
    sessions.push_back(std::move(queued));
  }
  for (const SessionStatus& session : sessions) {
    v1::SessionInfo* info = response->add_sessions();
    info->set_session_id(session.id);
    info->set_request_id(session.request_id);
    info->set_choice(session.choice);
    info->set_method(ToProto(session.method));
    info->set_prompt_tokens(session.prompt_tokens);
    info->set_generated_tokens(session.generated_tokens);
    info->set_target_address(session.target_address);
    info->set_draft_address(session.draft_address);
    if (session.queue_position.has_value()) {
      info->set_queue_position(*session.queue_position);
    }
  }
  return Done(context);
}

grpc::ServerUnaryReactor* AdminService::DrainWorker(
    grpc::CallbackServerContext* context, const v1::DrainWorkerRequest* request,
    v1::DrainWorkerResponse*) {
  if (absl::Status refused =
          authenticator_->AuthenticateOperator(PeerOf(*context));
      !refused.ok()) {
    return Done(context, rpc::ToGrpcStatus(refused));
  }
  return Done(context, rpc::ToGrpcStatus(registry_->Drain(request->address())));
}

}  // namespace nacre::coordinator
