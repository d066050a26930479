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

// How often in the limit nodes say where they are, and are looked at.
constexpr int kLooksInLimit = 8;

absl::Status TooLong(std::chrono::milliseconds limit, const char* what) {
  return absl::DeadlineExceededError(
      absl::StrCat(what, " for ", limit.count(), " ms"));
}

std::chrono::milliseconds Since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
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
    const absl::Status status = group->WaitUntilIdle(
        member.get(), "the others have not joined", group->options_.limit);
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
  for (CallMark& mark : member.marks) {
    NACRE_ASSIGN_OR_RETURN(mark.event, member.api->EventCreate());
  }
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
    for (const CallMark& mark : member->marks) {
      if (mark.event != nullptr) member->api->EventDestroy(mark.event);
    }
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

absl::Status NcclGroup::WaitUntilIdle(Member* member, const char* what,
                                      std::chrono::milliseconds limit) {
  const Clock::time_point last = Clock::now() + limit;
  for (int asked = 0;; ++asked) {
    {
      absl::MutexLock lock(&member->mu);
      if (member->comm == nullptr) return failure();
      NACRE_ASSIGN_OR_RETURN(const bool is_idle,
                             member->api->CommIsIdle(member->comm));
      if (is_idle) return absl::OkStatus();
    }
    if (Clock::now() > last) return TooLong(limit, what);
    if (asked < kBusyQuestions) {
      std::this_thread::yield();
    } else {
      NACRE_RETURN_IF_ERROR(CheckNodes());
      std::this_thread::sleep_for(kPause);
    }
  }
}

absl::Status NcclGroup::Start(Member* member, What what, Call call) {
  absl::MutexLock lock(&member->mu);
  if (member->comm == nullptr) return failure();
  member->marks[member->called % kMarks].what = what;
  ++member->called;
  member->since = Clock::now();
  return call(*member->api, member->comm);
}

absl::Status NcclGroup::Mark(Member* member, NcclApi::Stream stream) {
  NcclApi::Event event;
  {
    absl::MutexLock lock(&member->mu);
    event = member->marks[member->marked % kMarks].event;
  }
  // Without the lock: a full queue may hold it up, and an abort must not wait.
  NACRE_RETURN_IF_ERROR(member->api->EventRecord(event, stream));
  absl::MutexLock lock(&member->mu);
  ++member->marked;
  return absl::OkStatus();
}

absl::Status NcclGroup::Queue(size_t index, What what, NcclApi::Stream stream,
                              Call call) {
  Member& member = *members_[index];
  NACRE_RETURN_IF_ERROR(failure());
  NACRE_RETURN_IF_ERROR(Checked(member, Start(&member, what, call)));
  // Twice the limit: the watch says who has not come.
  NACRE_RETURN_IF_ERROR(
      Checked(member, WaitUntilIdle(&member, "NCCL has not queued a call",
                                    2 * options_.limit)));
  return Checked(member, Mark(&member, stream));
}

absl::Status NcclGroup::Look(Member* member) {
  absl::MutexLock lock(&member->mu);
  if (member->comm == nullptr) return absl::OkStatus();
  return member->api->CommIsIdle(member->comm).status();
}

absl::StatusOr<RankProgress> NcclGroup::ProgressOf(Member* member) {
  RankProgress progress;
  progress.rank = member->rank;
  absl::optional<Clock::time_point> since;
  std::array<CallMark, kMarks> marks;
  uint64_t marked = 0;
  {
    absl::MutexLock lock(&member->mu);
    progress.called = progress.done = member->called;
    since = member->since;
    if (!since.has_value()) return progress;
    marks = member->marks;
    marked = member->marked;
  }
  // The first that has not ended. What is recorded next takes the oldest mark.
  progress.done = marked < kMarks ? 0 : marked - kMarks + 1;
  for (; progress.done < marked; ++progress.done) {
    NACRE_ASSIGN_OR_RETURN(
        const bool is_done,
        member->api->EventIsDone(marks[progress.done % kMarks].event));
    if (!is_done) break;
  }
  if (progress.done == progress.called) {
    absl::MutexLock lock(&member->mu);
    if (member->since == since) member->since.reset();
    return progress;
  }
  const What& what = marks[progress.done % kMarks].what;
  progress.what = absl::StrCat(what.name, " of ", what.bytes, " bytes");
  progress.waits = Since(*since);
  return progress;
}

absl::StatusOr<std::vector<NodeProgress>> NcclGroup::AllProgress() {
  std::vector<NodeProgress> all(1);
  for (const auto& member : members_) {
    absl::StatusOr<RankProgress> progress = ProgressOf(member.get());
    if (!progress.ok()) return FailureOfRank(member->rank, progress.status());
    all[0].ranks.push_back(*std::move(progress));
  }
  if (options_.nodes == nullptr) return all;
  all[0].node = options_.nodes->node();
  for (NodeProgress& other : options_.nodes->Progress()) {
    all.push_back(std::move(other));
  }
  return all;
}

absl::Status NcclGroup::LookForHangs() {
  NACRE_ASSIGN_OR_RETURN(const std::vector<NodeProgress> all, AllProgress());
  const bool is_first = options_.nodes == nullptr || all[0].node == 0;
  if (!is_first) options_.nodes->SayProgress(all[0].ranks);
  const auto limit = is_first ? options_.limit : options_.limit * 5 / 4;
  if (!Hangs(all, limit)) return absl::OkStatus();
  std::string text = DescribeHang(all, ranks_, limit);
  if (!is_first) absl::StrAppend(&text, "; node 0 has not said for whom");
  return absl::DeadlineExceededError(text);
}

void NcclGroup::Watch() {
  absl::MutexLock lock(&mu_);
  const auto ends = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stops_ || !failure_.ok();
  };
  Clock::time_point looked = Clock::now();
  while (!mu_.AwaitWithTimeout(absl::Condition(&ends),
                               absl::FromChrono(options_.watch))) {
    mu_.Unlock();
    static_cast<void>(CheckNodes());
    for (const auto& member : members_) {
      const absl::Status status = Look(member.get());
      if (!status.ok()) Abort(FailureOfRank(member->rank, status));
    }
    if (Since(looked) >= options_.limit / kLooksInLimit) {
      looked = Clock::now();
      const absl::Status status = LookForHangs();
      // Who owns the nodes may be what hangs.
      if (!status.ok() && options_.nodes != nullptr) {
        options_.nodes->Abort(status);
      }
      if (!status.ok()) Abort(status);
    }
    mu_.Lock();
  }
}

}  // namespace nacre::kernels
