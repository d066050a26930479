#include "worker/tensors/nccl_link.h"

#include <atomic>
#include <functional>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "worker/engine/clock.h"

namespace nacre::worker {
namespace {

// Between two looks: at transfers under way, and at links that may have failed.
constexpr absl::Duration kBusyPause = absl::Microseconds(50);
constexpr absl::Duration kIdlePause = absl::Milliseconds(100);

}  // namespace

bool NcclLink::HasRoom() const {
  absl::MutexLock lock(&mu_);
  return !is_over_ && outstanding_ < NcclTransfers::kMostUnderWay;
}

bool NcclLink::Send(std::shared_ptr<const WireTensor> tensor) {
  const size_t num_bytes = tensor->bytes.size();
  NACRE_CHECK(num_bytes <= NcclTransfers::kMaxBytes,
              "a tensor that no transfer holds");
  return Add(num_bytes, std::move(tensor), NcclTransfers::kMostUnderWay);
}

bool NcclLink::Expect(size_t num_bytes) {
  return num_bytes <= NcclTransfers::kMaxBytes &&
         Add(num_bytes, nullptr, kMostExpected);
}

bool NcclLink::Add(size_t num_bytes, std::shared_ptr<const WireTensor> tensor,
                   size_t limit) {
  {
    absl::MutexLock lock(&mu_);
    if (is_over_ || outstanding_ >= limit) return false;
    waiting_.push_back({++last_number_, num_bytes, std::move(tensor)});
    ++outstanding_;
  }
  links_->Wake();
  return true;
}

bool NcclLink::TakeNext(Waiting* next) {
  absl::MutexLock lock(&mu_);
  if (is_over_ || waiting_.empty()) return false;
  *next = std::move(waiting_.front());
  waiting_.pop_front();
  return true;
}

bool NcclLink::is_over() const {
  absl::MutexLock lock(&mu_);
  return is_over_;
}

void NcclLink::Close() {
  {
    absl::MutexLock calls(&calls_mu_);
    listener_ = nullptr;
    absl::MutexLock lock(&mu_);
    is_over_ = true;
    waiting_.clear();
  }
  links_->Wake();
}

void NcclLink::Report(const NcclTransfers::Done& done) {
  absl::MutexLock calls(&calls_mu_);
  if (done.number != 0) {
    absl::MutexLock lock(&mu_);
    --outstanding_;
  }
  if (listener_ == nullptr) return;
  if (done.number == 0) {
    listener_->OnUp();
  } else if (end_ == LinkEnd::kSender) {
    listener_->OnSent(done.num_bytes);
  } else {
    listener_->OnReceived(done.bytes);
  }
}

void NcclLink::Fail(const absl::Status& reason) {
  absl::MutexLock calls(&calls_mu_);
  {
    absl::MutexLock lock(&mu_);
    is_over_ = true;
    waiting_.clear();
  }
  LinkListener* const listener = std::exchange(listener_, nullptr);
  if (listener != nullptr) listener->OnFailed(reason);
}

struct NcclLinks::Driven {
  Driven(std::shared_ptr<NcclLink> its_link, std::string its_id)
      : link(std::move(its_link)), id(std::move(its_id)) {}
  ~Driven() {
    if (helper.joinable()) helper.join();
    if (lanes != nullptr && lane.ok() && *lane != nullptr) {
      lanes->GiveBack(*std::move(lane));
    }
  }

  const std::shared_ptr<NcclLink> link;
  std::string id;
  NcclLanes* lanes = nullptr;  // null: not begun
  // Takes the lane, and later aborts: what may wait for the device.
  std::thread helper;
  std::atomic<bool> helper_is_through = false;
  absl::StatusOr<std::unique_ptr<NcclLane>> lane = nullptr;  // the helper's
  std::unique_ptr<NcclTransfers> transfers;  // null: it has no lane yet
  bool has_said_hello = false;
  bool is_up = false;
  // When the oldest of what is under way was posted, or the link was begun.
  std::deque<int64_t> since_ns = {MonotonicNowNs()};
};

NcclLinks::NcclLinks(std::unique_ptr<kernels::NcclApi> api,
                     const Options& options)
    : api_(std::move(api)), options_(options), thread_([this] { Run(); }) {}

NcclLinks::~NcclLinks() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    changed_.Signal();
  }
  thread_.join();
}

std::shared_ptr<SideLink> NcclLinks::Open(LinkEnd end, std::string id,
                                          LinkListener* listener) {
  std::shared_ptr<NcclLink> link(new NcclLink(this, end, listener));
  auto driven = std::make_unique<Driven>(link, std::move(id));
  absl::MutexLock lock(&mu_);
  new_.push_back(std::move(driven));
  has_work_ = true;
  changed_.Signal();
  return link;
}

void NcclLinks::Wake() {
  absl::MutexLock lock(&mu_);
  has_work_ = true;
  changed_.Signal();
}

void NcclLinks::Run() {
  const absl::Status bound = api_->BindThread();
  NcclLanes lanes(api_.get(), NcclTransfers::SlotBytes());
  std::vector<std::unique_ptr<Driven>> links, ending;
  bool is_busy = false;
  while (AwaitWork(is_busy, &links)) {
    is_busy = DriveAll(bound, &lanes, &links, &ending);
    std::erase_if(ending, [](const std::unique_ptr<Driven>& driven) {
      return driven->helper_is_through.load();
    });
  }
  // All at once: each may wait for what another one's abort ends.
  for (const std::unique_ptr<Driven>& driven : links) BeginEnd(driven.get());
}

bool NcclLinks::DriveAll(const absl::Status& bound, NcclLanes* lanes,
                         std::vector<std::unique_ptr<Driven>>* links,
                         std::vector<std::unique_ptr<Driven>>* ending) {
  bool is_busy = false;
  std::vector<std::unique_ptr<Driven>> going_on;
  for (std::unique_ptr<Driven>& driven : *links) {
    bool is_over = driven->link->is_over();
    if (!is_over) {
      const absl::Status status =
          bound.ok() ? Drive(driven.get(), lanes) : bound;
      // Told before it is aborted: that may take a while.
      if (!status.ok()) driven->link->Fail(status);
      is_over = !status.ok();
    }
    if (is_over) {
      BeginEnd(driven.get());
      ending->push_back(std::move(driven));
      continue;
    }
    is_busy = is_busy || !driven->since_ns.empty();
    going_on.push_back(std::move(driven));
  }
  *links = std::move(going_on);
  return is_busy;
}

void NcclLinks::Help(Driven* driven, std::function<void()> work) {
  if (driven->helper.joinable()) driven->helper.join();
  driven->helper_is_through = false;
  driven->helper = std::thread([this, driven, work = std::move(work)] {
    work();
    driven->helper_is_through = true;
    Wake();
  });
}

void NcclLinks::BeginEnd(Driven* driven) {
  if (driven->transfers != nullptr) {
    Help(driven, [driven] { driven->transfers->Abort(); });
  } else if (driven->lanes == nullptr) {
    driven->helper_is_through = true;
  }
}

bool NcclLinks::AwaitWork(bool is_busy,
                          std::vector<std::unique_ptr<Driven>>* driven) {
  absl::MutexLock lock(&mu_);
  while (!stopping_ && !has_work_) {
    if (driven->empty()) {
      changed_.Wait(&mu_);
    } else if (changed_.WaitWithTimeout(&mu_,
                                        is_busy ? kBusyPause : kIdlePause)) {
      break;
    }
  }
  has_work_ = false;
  std::move(new_.begin(), new_.end(), std::back_inserter(*driven));
  new_.clear();
  return !stopping_;
}

void NcclLinks::BeginLane(Driven* driven, NcclLanes* lanes) {
  driven->lanes = lanes;
  Help(driven, [this, driven, lanes] {
    const absl::Status bound = api_->BindThread();
    driven->lane = bound.ok() ? lanes->Take() : bound;
  });
}

absl::Status NcclLinks::Begin(Driven* driven) {
  driven->helper.join();
  NACRE_RETURN_IF_ERROR(driven->lane.status());
  NcclLink* const link = driven->link.get();
  driven->transfers =
      std::make_unique<NcclTransfers>(api_.get(), driven->lanes, link->end_);
  if (link->end_ == LinkEnd::kSender) {
    NACRE_ASSIGN_OR_RETURN(driven->id, api_->GetUniqueId());
    absl::MutexLock calls(&link->calls_mu_);
    if (link->listener_ != nullptr) link->listener_->OnId(driven->id);
  }
  return driven->transfers->Open(*std::move(driven->lane), driven->id);
}

absl::Status NcclLinks::Drive(Driven* driven, NcclLanes* lanes) {
  if (driven->lanes == nullptr) BeginLane(driven, lanes);
  if (driven->transfers == nullptr) {
    if (!driven->helper_is_through) return CheckTime(*driven);
    NACRE_RETURN_IF_ERROR(Begin(driven));
  }
  NcclLink* const link = driven->link.get();
  NcclTransfers& transfers = *driven->transfers;
  while (true) {
    NACRE_ASSIGN_OR_RETURN(const bool can_post, transfers.CanPost());
    NACRE_ASSIGN_OR_RETURN(const NcclTransfers::Done done,
                           transfers.TakeDone());
    if (done.any) {
      driven->since_ns.pop_front();
      driven->is_up = true;
      link->Report(done);
      continue;
    }
    if (!can_post) break;
    NcclLink::Waiting next;  // at first the empty transfer
    const bool is_first = !driven->has_said_hello;
    if (!is_first && !link->TakeNext(&next)) break;
    driven->has_said_hello = true;
    if (!is_first) driven->since_ns.push_back(MonotonicNowNs());
    NACRE_RETURN_IF_ERROR(
        link->end_ == LinkEnd::kReceiver
            ? transfers.PostReceive(next.number, next.num_bytes)
            : transfers.PostSend(next.number, next.tensor == nullptr
                                                  ? absl::string_view()
                                                  : next.tensor->bytes));
  }
  return CheckTime(*driven);
}

absl::Status NcclLinks::CheckTime(const Driven& driven) const {
  if (driven.since_ns.empty()) return absl::OkStatus();
  const absl::Duration limit =
      driven.is_up ? options_.transfer_timeout : options_.setup_timeout;
  if (absl::Nanoseconds(MonotonicNowNs() - driven.since_ns.front()) <= limit) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrCat(driven.is_up ? "a transfer took over "
                                : "the peer has not joined within ",
                   absl::FormatDuration(limit)));
}

}  // namespace nacre::worker
