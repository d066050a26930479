#include "tools/cluster/readiness.h"

#include <chrono>

#include "common/rpc/channel.h"

namespace nacre::tools {
namespace {

void SetDeadline(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::seconds(1));
}

}  // namespace

ReadinessProbe::ReadinessProbe(const Door& operators, const Door& clients)
    : operator_security_(operators.security),
      client_security_(clients.security),
      admin_(v1::Admin::NewStub(
          rpc::CreateChannel(operators.address, operators.security.channel))),
      inference_(v1::Inference::NewStub(
          rpc::CreateChannel(clients.address, clients.security.channel))) {}

ReadyWorkers ReadinessProbe::Count() const {
  ReadyWorkers ready;
  {
    grpc::ClientContext context;
    SetDeadline(&context);
    operator_security_.Apply(&context);
    v1::ListWorkersResponse response;
    if (!admin_->ListWorkers(&context, {}, &response).ok()) return ready;
    for (const v1::WorkerInfo& worker : response.workers()) {
      if (!worker.ready()) continue;
      const v1::WorkerRole role = worker.hello().role();
      if (role == v1::WORKER_ROLE_TARGET) ++ready.targets;
      if (role == v1::WORKER_ROLE_DRAFT) ++ready.drafts;
    }
  }
  grpc::ClientContext context;
  SetDeadline(&context);
  client_security_.Apply(&context);
  v1::Model model;
  ready.model_known = inference_->GetModel(&context, {}, &model).ok();
  return ready;
}

}  // namespace nacre::tools
