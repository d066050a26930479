#include "tests/worker/tensors/nccl_stand_in.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre::worker {

// What all streams of one device have to do.
class NcclStandIn::Device {
 public:
  void Add(int jobs) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    jobs_ += jobs;
  }
  // What frees memory does.
  void AwaitIdle() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(
        +[](int* jobs) { return *jobs == 0; }, &jobs_));
  }

 private:
  absl::Mutex mu_;
  int jobs_ ABSL_GUARDED_BY(mu_) = 0;
};

// Runs what is queued, in order, on a thread of its own.
class NcclStandIn::Stream {
 public:
  explicit Stream(Device* device)
      : device_(device), thread_([this] { Run(); }) {}
  // After everything on it has ended or was aborted.
  ~Stream() {
    Queue(nullptr);
    thread_.join();
  }
  void Queue(std::function<void()> job) ABSL_LOCKS_EXCLUDED(mu_) {
    if (job != nullptr) device_->Add(1);
    absl::MutexLock lock(&mu_);
    jobs_.push_back(std::move(job));
  }

 private:
  void Run() {
    while (true) {
      std::function<void()> job;
      {
        absl::MutexLock lock(&mu_);
        mu_.Await(absl::Condition(
            +[](std::deque<std::function<void()>>* jobs) {
              return !jobs->empty();
            },
            &jobs_));
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      if (job == nullptr) return;
      job();
      device_->Add(-1);
    }
  }

  Device* const device_;
  absl::Mutex mu_;
  std::deque<std::function<void()>> jobs_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

struct NcclStandIn::Comm {
  Pair* pair = nullptr;
  int rank = 0;
  bool aborted = false;  // under mu_
  // What the last call does once it has been asked for, of the calling thread.
  std::function<void()> begun;
  bool was_asked = false;
};

class NcclStandIn::Api final : public kernels::NcclApi {
 public:
  Api(NcclStandIn* world, std::string version)
      : world_(world), version_(std::move(version)) {}
  ~Api() override {
    absl::MutexLock lock(&mu_);
    EXPECT_TRUE(memory_.empty()) << "memory that was not freed";
  }

  std::string version() const override { return version_; }
  absl::Status BindThread() override {
    {
      absl::MutexLock lock(&mu_);
      threads_.insert(std::this_thread::get_id());
    }
    return world_->Call();
  }
  absl::StatusOr<std::string> GetUniqueId() override {
    NACRE_RETURN_IF_ERROR(Call());
    absl::MutexLock lock(&world_->mu_);
    return absl::StrCat("id ", world_->num_ids_++);
  }
  absl::StatusOr<NcclApi::Comm> CommInitRank(const std::string& id, int rank,
                                             int ranks) override {
    NACRE_RETURN_IF_ERROR(Call());
    EXPECT_EQ(ranks, 2);
    auto* const comm = new NcclStandIn::Comm;
    comm->rank = rank;
    world_->CountObjects(1);
    absl::MutexLock lock(&world_->mu_);
    comm->pair = &world_->pairs_[id];
    EXPECT_FALSE(std::exchange(comm->pair->joined[rank], true))
        << "rank " << rank << " joins twice";
    return NcclApi::Comm(comm);
  }
  absl::StatusOr<bool> CommIsIdle(NcclApi::Comm handle) override {
    NACRE_RETURN_IF_ERROR(Call());
    auto* const comm = static_cast<NcclStandIn::Comm*>(handle);
    {
      absl::MutexLock lock(&world_->mu_);
      NACRE_RETURN_IF_ERROR(world_->errors_[comm->rank]);
      if (world_->holds_joins_ || !comm->pair->joined[0] ||
          !comm->pair->joined[1]) {
        return false;
      }
    }
    if (comm->begun == nullptr) return true;
    if (!std::exchange(comm->was_asked, true)) return false;
    std::exchange(comm->begun, nullptr)();
    return true;
  }
  void CommAbort(NcclApi::Comm handle) override {
    auto* const comm = static_cast<NcclStandIn::Comm*>(handle);
    {
      absl::MutexLock lock(&world_->mu_);
      comm->aborted = true;
      aborted_.emplace_back(comm);
      ++world_->num_aborts_;
      --world_->num_objects_;
      world_->changed_.SignalAll();
    }
    device_.AwaitIdle();  // NCCL frees its memory, too
  }
  absl::Status Send(const void* device, size_t bytes, int peer,
                    NcclApi::Comm comm, NcclApi::Stream stream) override {
    const auto* const data = static_cast<const char*>(device);
    return Begin(comm, device, bytes, peer, stream,
                 [this, data, bytes](NcclStandIn::Comm* sender) {
                   world_->RunSend(sender, data, bytes);
                 });
  }
  absl::Status Recv(void* device, size_t bytes, int peer, NcclApi::Comm comm,
                    NcclApi::Stream stream) override {
    auto* const data = static_cast<char*>(device);
    return Begin(comm, device, bytes, peer, stream,
                 [this, data, bytes](NcclStandIn::Comm* receiver) {
                   world_->RunReceive(receiver, data, bytes);
                 });
  }

  absl::StatusOr<NcclApi::Stream> StreamCreate() override {
    NACRE_RETURN_IF_ERROR(Call());
    world_->CountObjects(1);
    return NcclApi::Stream(new NcclStandIn::Stream(&device_));
  }
  void StreamDestroy(NcclApi::Stream stream) override {
    CheckThread();
    delete static_cast<NcclStandIn::Stream*>(stream);
    world_->CountObjects(-1);
  }
  absl::StatusOr<void*> Malloc(size_t bytes) override {
    return Allocate(bytes, /*is_device=*/true);
  }
  void Free(void* device) override { Release(device, true); }
  absl::StatusOr<void*> MallocHost(size_t bytes) override {
    return Allocate(bytes, /*is_device=*/false);
  }
  void FreeHost(void* host) override { Release(host, false); }
  absl::Status CopyToDevice(const void* host, size_t bytes, void* device,
                            NcclApi::Stream stream) override {
    return Copy(host, false, device, bytes, stream);
  }
  absl::Status CopyToHost(const void* device, size_t bytes, void* host,
                          NcclApi::Stream stream) override {
    return Copy(device, true, host, bytes, stream);
  }
  absl::StatusOr<Event> EventCreate() override {
    NACRE_RETURN_IF_ERROR(Call());
    world_->CountObjects(1);
    return Event(new std::atomic<bool>(false));
  }
  void EventDestroy(Event event) override {
    CheckThread();
    delete static_cast<std::atomic<bool>*>(event);
    world_->CountObjects(-1);
  }
  absl::Status EventRecord(Event event, NcclApi::Stream stream) override {
    NACRE_RETURN_IF_ERROR(Call());
    auto* const is_done = static_cast<std::atomic<bool>*>(event);
    *is_done = false;
    ToStream(stream)->Queue([is_done] { *is_done = true; });
    return absl::OkStatus();
  }
  absl::StatusOr<bool> EventIsDone(Event event) override {
    NACRE_RETURN_IF_ERROR(Call());
    return static_cast<std::atomic<bool>*>(event)->load();
  }

 private:
  static NcclStandIn::Stream* ToStream(NcclApi::Stream stream) {
    return static_cast<NcclStandIn::Stream*>(stream);
  }
  void CheckThread() {
    absl::MutexLock lock(&mu_);
    EXPECT_EQ(threads_.count(std::this_thread::get_id()), 1u)
        << "of a thread that is not bound";
  }
  absl::Status Call() {
    CheckThread();
    return world_->Call();
  }

  absl::Status Begin(NcclApi::Comm handle, const void* device, size_t bytes,
                     int peer, NcclApi::Stream stream,
                     std::function<void(NcclStandIn::Comm*)> run) {
    NACRE_RETURN_IF_ERROR(Call());
    auto* const comm = static_cast<NcclStandIn::Comm*>(handle);
    EXPECT_EQ(peer, 1 - comm->rank);
    EXPECT_EQ(comm->begun, nullptr) << "a call on a busy communicator";
    ExpectMemory(device, bytes, true);
    comm->was_asked = false;
    comm->begun = [comm, stream, run = std::move(run)] {
      ToStream(stream)->Queue([comm, run] { run(comm); });
    };
    return absl::OkStatus();
  }

  absl::StatusOr<void*> Allocate(size_t bytes, bool is_device) {
    NACRE_RETURN_IF_ERROR(Call());
    device_.AwaitIdle();
    world_->CountObjects(1);
    auto block = std::make_unique<Block>();
    block->bytes.resize(bytes);
    block->is_device = is_device;
    void* const data = block->bytes.data();
    absl::MutexLock lock(&mu_);
    memory_[data] = std::move(block);
    return data;
  }
  void Release(void* data, bool is_device) {
    CheckThread();
    ExpectMemory(data, 1, is_device);
    device_.AwaitIdle();
    absl::MutexLock lock(&mu_);
    memory_.erase(data);
    world_->CountObjects(-1);
  }
  absl::Status Copy(const void* from, bool from_device, void* to, size_t bytes,
                    NcclApi::Stream stream) {
    NACRE_RETURN_IF_ERROR(Call());
    ExpectMemory(from, bytes, from_device);
    ExpectMemory(to, bytes, !from_device);
    ToStream(stream)->Queue([=] { std::memcpy(to, from, bytes); });
    return absl::OkStatus();
  }
  // From the start of a block.
  void ExpectMemory(const void* data, size_t bytes, bool is_device) {
    absl::MutexLock lock(&mu_);
    const auto it = memory_.find(data);
    if (it == memory_.end()) {
      ADD_FAILURE() << "memory that there is not";
      return;
    }
    EXPECT_EQ(it->second->is_device, is_device);
    EXPECT_LE(bytes, it->second->bytes.size());
  }

  struct Block {
    std::vector<char> bytes;
    bool is_device = false;
  };

  NcclStandIn* const world_;
  const std::string version_;
  Device device_;
  absl::Mutex mu_;
  std::set<std::thread::id> threads_ ABSL_GUARDED_BY(mu_);  // that are bound
  std::map<const void*, std::unique_ptr<Block>> memory_ ABSL_GUARDED_BY(mu_);
  // Until the end: streams may still run what they were told to do with them.
  std::vector<std::unique_ptr<NcclStandIn::Comm>> aborted_;
};

NcclStandIn::~NcclStandIn() {
  EXPECT_EQ(num_objects(), 0) << "what was not freed";
}

std::unique_ptr<kernels::NcclApi> NcclStandIn::Open(std::string version) {
  return std::make_unique<Api>(this, std::move(version));
}

void NcclStandIn::HoldJoins(bool hold) {
  absl::MutexLock lock(&mu_);
  holds_joins_ = hold;
}

void NcclStandIn::HoldTransfers(bool hold) {
  absl::MutexLock lock(&mu_);
  holds_transfers_ = hold;
  changed_.SignalAll();
}

void NcclStandIn::LoseTransfer(int index) {
  absl::MutexLock lock(&mu_);
  lost_ = index;
}

void NcclStandIn::SwapTransfer(int index) {
  absl::MutexLock lock(&mu_);
  swapped_ = index;
}

void NcclStandIn::FailRank(int rank, const absl::Status& error) {
  absl::MutexLock lock(&mu_);
  errors_[rank] = error;
}

void NcclStandIn::FailCall(int index) {
  absl::MutexLock lock(&mu_);
  failing_call_ = index;
}

int NcclStandIn::num_transfers() const {
  absl::MutexLock lock(&mu_);
  return num_transfers_;
}

int NcclStandIn::num_aborts() const {
  absl::MutexLock lock(&mu_);
  return num_aborts_;
}

int NcclStandIn::num_calls() const {
  absl::MutexLock lock(&mu_);
  return num_calls_;
}

int NcclStandIn::num_objects() const {
  absl::MutexLock lock(&mu_);
  return num_objects_;
}

absl::Status NcclStandIn::Call() {
  absl::MutexLock lock(&mu_);
  if (num_calls_++ != failing_call_) return absl::OkStatus();
  return absl::InternalError("a call that was told to fail");
}

void NcclStandIn::CountObjects(int change) {
  absl::MutexLock lock(&mu_);
  num_objects_ += change;
}

void NcclStandIn::RunSend(Comm* comm, const char* data, size_t bytes) {
  std::vector<char> payload(data, data + bytes);
  absl::MutexLock lock(&mu_);
  if (comm->aborted) return;
  const int index = num_transfers_++;
  Pair& pair = *comm->pair;
  if (index == swapped_) {
    pair.kept_back = std::move(payload);
    return;
  }
  if (index != lost_) {
    pair.wire.push_back(std::move(payload));
    ++pair.num_sent;
    if (!pair.kept_back.empty()) {
      pair.wire.push_back(std::exchange(pair.kept_back, {}));
      ++pair.num_sent;
    }
    changed_.SignalAll();
  }
  const int sent = pair.num_sent;
  while (!comm->aborted && (index == lost_ || pair.num_received < sent)) {
    changed_.Wait(&mu_);
  }
}

void NcclStandIn::RunReceive(Comm* comm, char* data, size_t bytes) {
  absl::MutexLock lock(&mu_);
  Pair& pair = *comm->pair;
  while (!comm->aborted && (pair.wire.empty() || holds_transfers_)) {
    changed_.Wait(&mu_);
  }
  if (comm->aborted) return;
  const std::vector<char> payload = std::move(pair.wire.front());
  pair.wire.pop_front();
  std::memcpy(data, payload.data(), std::min(bytes, payload.size()));
  ++pair.num_received;
  changed_.SignalAll();
}

}  // namespace nacre::worker
