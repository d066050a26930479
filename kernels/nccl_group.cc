#include "kernels/nccl_group.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "kernels/staged_collective.h"

namespace nacre::kernels {
namespace {

// NCCL's own threads are mostly done at once.
constexpr int kBusyQuestions = 1000;
constexpr std::chrono::microseconds kPause(50);

absl::Status TooLong(std::chrono::milliseconds limit, const char* what) {
  return absl::DeadlineExceededError(
      absl::StrCat(what, " for ", limit.count(), " ms"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclGroup>> NcclGroup::Join(
    const std::string& id, int ranks, std::vector<Rank> own,
    const NcclGroupOptions& options) {
  std::unique_ptr<NcclGroup> group(new NcclGroup(ranks, options));
  // All begin before one is waited for.
  for (Rank& rank : own) {
    const int number = rank.rank;
    const absl::Status status = group->Begin(id, std::move(rank));
    if (!status.ok()) return FailureOfRank(number, status);
  }
  for (const auto& member : group->members_) {
    const absl::Status status =
        group->WaitUntilIdle(member.get(), "the others have not joined");
    NACRE_RETURN_IF_ERROR(group->failure());
    if (!status.ok()) return FailureOfRank(member->rank, status);
  }
  group->watch_ = std::thread(&NcclGroup::Watch, group.get());
  return group;
}

absl::Status NcclGroup::Begin(const std::string& id, Rank own) {
  Member& member = *members_.emplace_back(std::make_unique<Member>());
  member.rank = own.rank;
  member.api = std::move(own.api);
  absl::MutexLock lock(&member.mu);
  NACRE_RETURN_IF_ERROR(member.api->BindThread());
  NACRE_ASSIGN_OR_RETURN(member.event, member.api->EventCreate());
  NACRE_ASSIGN_OR_RETURN(member.comm,
                         member.api->CommInitRank(id, own.rank, ranks_));
  return absl::OkStatus();
}

NcclGroup::~NcclGroup() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  if (watch_.joinable()) watch_.join();
  for (const auto& member : members_) {
    absl::MutexLock lock(&member->mu);
    if (member->comm != nullptr) member->api->CommAbort(member->comm);
    if (member->event != nullptr) member->api->EventDestroy(member->event);
  }
}

absl::Status NcclGroup::failure() const {
  if (!has_failed_.load()) return absl::OkStatus();
  absl::MutexLock lock(&mu_);
  return failure_;
}

void NcclGroup::Abort(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mu_);
    if (!failure_.ok()) return;
    failure_ = reason;
    has_failed_ = true;
  }
  for (const auto& member : members_) {
    absl::MutexLock lock(&member->mu);
    if (member->comm != nullptr) {
      member->api->CommAbort(std::exchange(member->comm, nullptr));
    }
  }
}

absl::Status NcclGroup::Checked(const Member& member,
                                const absl::Status& status) {
  if (!status.ok()) Abort(FailureOfRank(member.rank, status));
  return failure();
}

absl::Status NcclGroup::CheckNodes() {
  if (options_.nodes == nullptr) return absl::OkStatus();
  const absl::Status status = options_.nodes->failure();
  if (!status.ok()) Abort(status);
  return failure();
}

absl::Status NcclGroup::WaitUntilIdle(Member* member, const char* what) {
  const Clock::time_point last = Clock::now() + options_.limit;
  for (int asked = 0;; ++asked) {
    {
      absl::MutexLock lock(&member->mu);
      if (member->comm == nullptr) return failure();
      NACRE_ASSIGN_OR_RETURN(const bool is_idle,
                             member->api->CommIsIdle(member->comm));
      if (is_idle) return absl::OkStatus();
    }
    if (Clock::now() > last) return TooLong(options_.limit, what);
    if (asked < kBusyQuestions) {
      std::this_thread::yield();
    } else {
      NACRE_RETURN_IF_ERROR(CheckNodes());
      std::this_thread::sleep_for(kPause);
    }
  }
}

absl::Status NcclGroup::Mark(Member* member, NcclApi::Stream stream) {
  NcclApi::Event event;
  {
    absl::MutexLock lock(&member->mu);
    member->queued = Clock::now();
    event = member->event;
  }
  // Without the lock: a full queue may hold it up, and an abort must not wait.
  return member->api->EventRecord(event, stream);
}

absl::Status NcclGroup::Start(Member* member, Call call) {
  absl::MutexLock lock(&member->mu);
  if (member->comm == nullptr) return failure();
  return call(*member->api, member->comm);
}

absl::Status NcclGroup::Queue(size_t index, NcclApi::Stream stream, Call call) {
  Member& member = *members_[index];
  NACRE_RETURN_IF_ERROR(failure());
  NACRE_RETURN_IF_ERROR(Checked(member, Start(&member, call)));
  NACRE_RETURN_IF_ERROR(
      Checked(member, WaitUntilIdle(&member, "NCCL has not queued a call")));
  return Checked(member, Mark(&member, stream));
}

absl::Status NcclGroup::Look(Member* member) {
  absl::optional<Clock::time_point> queued;
  NcclApi::Event event;
  {
    absl::MutexLock lock(&member->mu);
    if (member->comm == nullptr) return absl::OkStatus();
    NACRE_RETURN_IF_ERROR(member->api->CommIsIdle(member->comm).status());
    queued = member->queued;
    event = member->event;
  }
  if (!queued.has_value() || Clock::now() - *queued <= options_.limit) {
    return absl::OkStatus();
  }
  NACRE_ASSIGN_OR_RETURN(const bool is_done, member->api->EventIsDone(event));
  if (!is_done) return TooLong(options_.limit, "the others have not come");
  absl::MutexLock lock(&member->mu);
  if (member->queued == queued) member->queued.reset();
  return absl::OkStatus();
}

void NcclGroup::Watch() {
  absl::MutexLock lock(&mu_);
  const auto ends = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stops_ || !failure_.ok();
  };
  while (!mu_.AwaitWithTimeout(absl::Condition(&ends),
                               absl::FromChrono(options_.watch))) {
    mu_.Unlock();
    static_cast<void>(CheckNodes());
    for (const auto& member : members_) {
      const absl::Status status = Look(member.get());
      if (!status.ok()) Abort(FailureOfRank(member->rank, status));
    }
    mu_.Lock();
  }
}

}  // namespace nacre::kernels
