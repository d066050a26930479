#include "worker/process/coordinators.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace nacre::worker {

Coordinators::Coordinators(Options options)
    : options_(std::move(options)),
      // A device whose capacity is not known has nothing to divide.
      grants_kv_(MayBeSeveral(options_.names) &&
                 options_.registration.hello.kv_capacity_tokens() > 0),
      grants_(static_cast<int64_t>(
          options_.registration.hello.kv_capacity_tokens())) {
  Follow(Resolve());
  const bool asks_again =
      std::any_of(options_.names.begin(), options_.names.end(),
                  [](const CoordinatorName& name) { return name.is_dns; });
  if (asks_again) {
    resolver_.Start(options_.resolve_period, [this] { Follow(Resolve()); });
  }
}

Coordinators::~Coordinators() {
  // They leave at the same time, and their threads may want the lock. The
  // system's resolver may take long.
  std::map<std::string, std::unique_ptr<Registration>> leaving;
  {
    absl::MutexLock lock(&mu_);
    ends_ = true;
    leaving.swap(registrations_);
  }
  for (const auto& [address, registration] : leaving) registration->Leave();
  leaving.clear();
  resolver_.Stop();
}

std::vector<std::string> Coordinators::Resolve() {
  std::vector<std::string> addresses;
  for (const CoordinatorName& name : options_.names) {
    if (!name.is_dns) {
      addresses.push_back(name.address());
      continue;
    }
    std::vector<std::string>& known = resolved_[name.address()];
    absl::StatusOr<std::vector<std::string>> found =
        options_.resolve(name.host, name.port);
    // A resolver that fails says nothing of those that it named before.
    if (found.ok()) {
      known = *std::move(found);
    } else {
      spdlog::warn("{}", std::string(found.status().message()));
    }
    addresses.insert(addresses.end(), known.begin(), known.end());
  }
  return addresses;
}

void Coordinators::Follow(const std::vector<std::string>& addresses) {
  std::vector<std::unique_ptr<Registration>> left;
  {
    absl::MutexLock lock(&mu_);
    if (ends_) return;
    for (auto it = registrations_.begin(); it != registrations_.end();) {
      const bool stays = std::find(addresses.begin(), addresses.end(),
                                   it->first) != addresses.end() ||
                         it->second->is_known();
      if (stays) {
        ++it;
        continue;
      }
      spdlog::info("leaves {}: its name has it no more", it->first);
      refused_by_.erase(it->first);
      left.push_back(std::move(it->second));
      it = registrations_.erase(it);
    }
    for (const std::string& address : addresses) {
      std::unique_ptr<Registration>& registration = registrations_[address];
      if (registration == nullptr) registration = Register(address);
    }
  }
}

std::unique_ptr<Registration> Coordinators::Register(
    const std::string& address) {
  Registration::Options options = options_.registration;
  options.coordinator = address;
  options.hello.set_grants_kv(grants_kv_);
  options.heartbeat = [this, address](uint64_t coordinator) {
    v1::Heartbeat heartbeat = options_.registration.heartbeat(coordinator);
    Grant(address, coordinator, &heartbeat);
    return heartbeat;
  };
  options.on_lost = [this](uint64_t coordinator) { OnLost(coordinator); };
  options.on_refused = [this, address](const absl::Status& status) {
    return OnRefused(address, status);
  };
  return std::make_unique<Registration>(std::move(options));
}

bool Coordinators::OnRefused(const std::string& address,
                             const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    // It is being left.
    if (registrations_.find(address) == registrations_.end()) return true;
    refused_by_.insert(address);
    if (MayBeSeveral(options_.names) &&
        refused_by_.size() < registrations_.size()) {
      return true;
    }
  }
  options_.on_refused(status);
  return false;
}

void Coordinators::Grant(const std::string& address, uint64_t coordinator,
                         v1::Heartbeat* heartbeat) {
  absl::MutexLock lock(&mu_);
  refused_by_.erase(address);
  if (!grants_kv_) return;
  if (!grants_.contains(coordinator)) grants_.Join(coordinator);
  const KvGrants::Grant grant = grants_.Tell(coordinator);
  heartbeat->mutable_kv_grant()->set_serial(grant.serial);
  heartbeat->mutable_kv_grant()->set_tokens(
      static_cast<uint64_t>(grant.tokens));
  heartbeat->set_other_sessions(static_cast<uint32_t>(grant.other_sessions));
}

void Coordinators::OnLost(uint64_t coordinator) {
  options_.registration.on_lost(coordinator);
  absl::MutexLock lock(&mu_);
  grants_.Leave(coordinator);
  TellUrgent();
}

void Coordinators::OnReport(uint64_t coordinator,
                            const wire::KvReport& report) {
  if (!grants_kv_) return;
  absl::MutexLock lock(&mu_);
  grants_.OnReport(coordinator, report);
  TellUrgent();
}

void Coordinators::TellUrgent() {
  for (const uint64_t coordinator : grants_.Urgent()) {
    for (const auto& [address, registration] : registrations_) {
      if (registration->coordinator() == coordinator) {
        registration->SendHeartbeat();
      }
    }
  }
}

void Coordinators::SendHeartbeat() {
  absl::MutexLock lock(&mu_);
  for (const auto& [address, registration] : registrations_) {
    registration->SendHeartbeat();
  }
}

bool Coordinators::IsDrainKnown() const {
  absl::MutexLock lock(&mu_);
  return std::all_of(
      registrations_.begin(), registrations_.end(),
      [](const auto& entry) { return entry.second->IsDrainKnown(); });
}

std::vector<Coordinators::State> Coordinators::states() const {
  std::vector<State> states;
  absl::MutexLock lock(&mu_);
  for (const auto& [address, registration] : registrations_) {
    const uint64_t coordinator = registration->coordinator();
    const bool registered = registration->registered();
    const int64_t held = grants_kv_ || !registered ? grants_.held(coordinator)
                                                   : grants_.capacity();
    states.push_back({address, registered, registered ? held : 0});
  }
  return states;
}

}  // namespace nacre::worker
