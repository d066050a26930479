#include "coordinator/api/registry_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/quoted.h"
#include "coordinator/api/attachment.h"

namespace nacre::coordinator {

RegistryService::RegistryService(Dispatcher* dispatcher,
                                 const tokenizer::Tokenizer* tokenizer,
                                 Options options)
    : dispatcher_(dispatcher),
      tokenizer_(tokenizer),
      options_(std::move(options)) {}

RegistryService::~RegistryService() {
  absl::MutexLock lock(&mu_);
  const auto all_ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return attachments_.empty();
  };
  mu_.Await(absl::Condition(&all_ended));
}

grpc::ServerBidiReactor<v1::WorkerEvent, v1::WorkerCommand>*
RegistryService::Attach(grpc::CallbackServerContext*) {
  std::shared_ptr<Attachment> attachment;
  bool shut_down = false;
  {
    absl::MutexLock lock(&mu_);
    shut_down = shut_down_;
    attachment = std::make_shared<Attachment>(this, next_serial_++);
    attachments_.insert(attachment);
  }
  auto stream = Attachment::Stream::Create(
      {[attachment](const v1::WorkerEvent& event) {
         attachment->OnMessage(event);
       },
       [attachment] { attachment->OnStreamDone(); }});
  attachment->SetStream(stream);
  if (shut_down) {
    attachment->Refuse(
        absl::UnavailableError("the coordinator is shutting down"));
  }
  return stream.get();
}

std::vector<std::shared_ptr<RegistryService::Attachment>>
RegistryService::attachments() {
  absl::MutexLock lock(&mu_);
  return {attachments_.begin(), attachments_.end()};
}

void RegistryService::Forget(const std::shared_ptr<Attachment>& attachment) {
  absl::MutexLock lock(&mu_);
  attachments_.erase(attachment);
}

void RegistryService::EndOlder(const std::string& address, uint64_t serial) {
  for (const auto& attachment : attachments()) {
    attachment->EndIfOlder(address, serial);
  }
}

std::vector<v1::WorkerInfo> RegistryService::ListWorkers() {
  std::vector<v1::WorkerInfo> workers;
  const std::vector<WorkerStatus> statuses = dispatcher_->workers();
  Attachment::Statuses by_id;
  for (const WorkerStatus& status : statuses) by_id[status.id] = &status;
  for (const auto& attachment : attachments()) {
    v1::WorkerInfo info;
    if (attachment->Describe(by_id, &info)) workers.push_back(std::move(info));
  }
  return workers;
}

void RegistryService::CountLost(WorkerRole role) {
  if (!shut_down_) ++num_lost_[static_cast<size_t>(role)];
}

absl::Status RegistryService::Drain(const std::string& address) {
  for (const auto& attachment : attachments()) {
    if (attachment->DrainIfAt(address)) return absl::OkStatus();
  }
  return absl::NotFoundError(
      absl::StrCat("no worker is attached at ", Quoted(address)));
}

int64_t RegistryService::Tick() {
  const int64_t now_ns = options_.now_ns();
  const int64_t period_ns = options_.worker_timeout_ns / 4;
  // A late tick: this process was stopped itself, and what the workers have
  // said since has yet to be read.
  const bool is_late = now_ns - last_tick_ns_ > 2 * period_ns;
  last_tick_ns_ = now_ns;
  if (!is_late) {
    for (const auto& attachment : attachments()) {
      attachment->EndIfSilent(now_ns);
    }
  }
  return now_ns + period_ns;
}

void RegistryService::Shutdown() {
  {
    absl::MutexLock lock(&mu_);
    shut_down_ = true;
  }
  for (const auto& attachment : attachments()) {
    attachment->Refuse(
        absl::UnavailableError("the coordinator is shutting down"));
  }
}

}  // namespace nacre::coordinator
