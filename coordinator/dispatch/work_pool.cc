#include "coordinator/dispatch/work_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace nacre::coordinator {

WorkPool::WorkPool(Options options) : options_(options) {
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

WorkPool::~WorkPool() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

bool WorkPool::TrySubmit(Task task) {
  std::vector<Task> evicted;
  bool taken = true;
  {
    absl::MutexLock lock(&mu_);
    while (taken && IsFull(task.bytes)) {
      Task other;
      taken = Evict(task.client, task.bytes, &other);
      if (taken) evicted.push_back(std::move(other));
    }
    if (taken) {
      ++num_tasks_;
      num_bytes_ += task.bytes;
      const std::string client = task.client;
      const void* owner = task.owner;
      Share& share = shares_[client];
      if (share.tasks.empty()) turns_.push_back(client);
      share.bytes += task.bytes;
      share.tasks.push_back(std::move(task));
      if (owner != nullptr) {
        owners_[owner] = {client, std::prev(share.tasks.end())};
      }
    }
  }
  for (const Task& other : evicted) other.refuse();
  return taken;
}

bool WorkPool::Withdraw(const void* owner) {
  Task task;  // destroyed without the lock: it may own much
  absl::MutexLock lock(&mu_);
  const auto it = owners_.find(owner);
  if (it == owners_.end()) return false;
  const Place place = it->second;
  task = Remove(place.client, place.task);
  --num_tasks_;
  num_bytes_ -= task.bytes;
  return true;
}

bool WorkPool::IsFull(int64_t bytes) const {
  return num_tasks_ >= options_.max_tasks ||
         (num_tasks_ > 0 && bytes > options_.max_bytes - num_bytes_);
}

bool WorkPool::MayRun(const Task& task) const {
  return !large_runs_ || task.bytes < options_.large_bytes;
}

bool WorkPool::HasWork() const {
  return std::any_of(turns_.begin(), turns_.end(),
                     [this](const std::string& client) {
                       mu_.AssertHeld();
                       return MayRun(shares_.at(client).tasks.front());
                     });
}

WorkPool::Task WorkPool::Remove(const std::string& client,
                                std::list<Task>::iterator task) {
  Share& share = shares_.at(client);
  Task removed = std::move(*task);
  share.tasks.erase(task);
  share.bytes -= removed.bytes;
  if (removed.owner != nullptr) owners_.erase(removed.owner);
  if (share.tasks.empty()) {
    turns_.erase(std::find(turns_.begin(), turns_.end(), client));
    shares_.erase(client);
  }
  return removed;
}

WorkPool::Task WorkPool::Take() {
  const auto turn = std::find_if(
      turns_.begin(), turns_.end(), [this](const std::string& client) {
        mu_.AssertHeld();
        return MayRun(shares_.at(client).tasks.front());
      });
  const std::string client = *turn;
  turns_.erase(turn);
  turns_.push_back(client);
  return Remove(client, shares_.at(client).tasks.begin());
}

bool WorkPool::Evict(const std::string& client, int64_t bytes, Task* evicted) {
  const bool by_tasks = num_tasks_ >= options_.max_tasks;
  const auto weight = [by_tasks](const Share& share) {
    return by_tasks ? static_cast<int64_t>(share.tasks.size()) : share.bytes;
  };
  const auto own = shares_.find(client);
  const int64_t own_weight =
      (own == shares_.end() ? 0 : weight(own->second)) + (by_tasks ? 1 : bytes);
  const auto most = std::max_element(
      shares_.begin(), shares_.end(), [&](const auto& a, const auto& b) {
        return weight(a.second) < weight(b.second);
      });
  if (most == shares_.end() || weight(most->second) <= own_weight ||
      most->second.tasks.back().refuse == nullptr) {
    return false;
  }
  const std::string loser = most->first;
  *evicted = Remove(loser, std::prev(most->second.tasks.end()));
  --num_tasks_;
  num_bytes_ -= evicted->bytes;
  return true;
}

void WorkPool::Run() {
  const auto is_due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return HasWork() || (stopping_ && shares_.empty());
  };
  while (true) {
    Task task;
    bool is_large = false;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&is_due));
      if (shares_.empty()) return;
      task = Take();
      is_large = task.bytes >= options_.large_bytes;
      large_runs_ = large_runs_ || is_large;
    }
    const int64_t bytes = task.bytes;
    task.run();
    task = {};  // before its place is free: it may own much
    absl::MutexLock lock(&mu_);
    --num_tasks_;
    num_bytes_ -= bytes;
    if (is_large) large_runs_ = false;
  }
}

}  // namespace nacre::coordinator
