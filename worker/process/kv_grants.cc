#include "worker/process/kv_grants.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace nacre::worker {
namespace {

constexpr int64_t kBlockTokens = 16;  // model::KvPool's

int64_t WholeBlocks(int64_t tokens) {
  return tokens / kBlockTokens * kBlockTokens;
}

// Adds to `shares` equal parts of `*left`, of each at most as much as `most`
// says (less: it wants no more), the modest first.
void AddEqually(const std::vector<int64_t>& most, int64_t* left,
                std::vector<int64_t>* shares) {
  std::vector<size_t> order(most.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return most[a] < most[b]; });
  for (size_t i = 0; i < order.size(); ++i) {
    const auto others = static_cast<int64_t>(order.size() - i);
    const int64_t part =
        std::clamp<int64_t>(most[order[i]], 0, WholeBlocks(*left / others));
    (*shares)[order[i]] += part;
    *left -= part;
  }
}

}  // namespace

std::vector<int64_t> DivideKv(int64_t capacity,
                              absl::Span<const KvClaim> claims) {
  std::vector<int64_t> shares;
  std::vector<int64_t> beyond;  // wanted beyond the first need
  int64_t left = capacity;
  for (const KvClaim& claim : claims) {
    shares.push_back(claim.reserved);
    beyond.push_back(std::max(claim.need, claim.wanted) - claim.need);
    left -= claim.reserved;
  }
  if (shares.empty() || left <= 0) return shares;
  for (size_t i = 0; i < claims.size(); ++i) {
    const int64_t part = std::min(claims[i].need, left);
    shares[i] += part;
    left -= part;
    // It saves up: nothing goes to those after it.
    if (part < claims[i].need) return shares;
  }
  AddEqually(beyond, &left, &shares);
  AddEqually(std::vector<int64_t>(claims.size(), left), &left, &shares);
  return shares;
}

const KvGrants::Coordinator* KvGrants::Find(uint64_t id) const {
  const auto it = std::find_if(
      coordinators_.begin(), coordinators_.end(),
      [id](const Coordinator& coordinator) { return coordinator.id == id; });
  return it == coordinators_.end() ? nullptr : &*it;
}

void KvGrants::Join(uint64_t coordinator) {
  Coordinator joining;
  joining.id = coordinator;
  coordinators_.push_back(joining);
  Divide();
}

void KvGrants::Leave(uint64_t coordinator) {
  coordinators_.erase(std::remove_if(coordinators_.begin(), coordinators_.end(),
                                     [coordinator](const Coordinator& each) {
                                       return each.id == coordinator;
                                     }),
                      coordinators_.end());
  Divide();
}

bool KvGrants::HasHadTurn(Coordinator* coordinator,
                          const wire::KvReport& report) {
  if (report.need_session == 0) return true;
  if (coordinator->offered == 0) return false;
  // Another request is first now: that one has got its room, or given up.
  if (coordinator->offered != report.need_session) return true;
  if (coordinator->granted - report.reserved < report.need) {
    // Smaller ones have passed it.
    coordinator->offered = 0;
    return false;
  }
  return ++coordinator->idle_reports >= kMaxIdleReports;
}

void KvGrants::OnReport(uint64_t coordinator, const wire::KvReport& report) {
  Coordinator* const found = Find(coordinator);
  if (found == nullptr || report.serial > found->serial) return;
  // What it had promised when it heard of an older grant is no bound on what it
  // has promised since.
  const bool is_current = report.serial == found->serial && found->serial != 0;
  if (is_current) {
    found->held =
        std::min(found->held, std::max(found->granted, report.reserved));
  }
  const bool had_turn = is_current && HasHadTurn(found, report);
  found->report = report;
  // More than it may have promised it has not.
  found->report.reserved = std::clamp<int64_t>(report.reserved, 0, found->held);
  found->report.need = std::clamp<int64_t>(report.need, 0, capacity_);
  if (report.need_session == 0) found->report.need = 0;
  if (had_turn) {
    found->offered = 0;
    const auto at = coordinators_.begin() + (found - coordinators_.data());
    const bool others_wait = std::any_of(
        at + 1, coordinators_.end(),
        [](const Coordinator& each) { return each.report.need > 0; });
    if (others_wait) std::rotate(at, at + 1, coordinators_.end());
  }
  Divide();
}

void KvGrants::Divide() {
  std::vector<KvClaim> claims;
  claims.reserve(coordinators_.size());
  for (const Coordinator& each : coordinators_) {
    claims.push_back({each.report.reserved, each.report.need,
                      std::clamp<int64_t>(each.report.wanted, 0, capacity_)});
  }
  const std::vector<int64_t> shares = DivideKv(capacity_, claims);
  for (size_t i = 0; i < coordinators_.size(); ++i) {
    coordinators_[i].share = shares[i];
  }
}

int64_t KvGrants::NextGrant(const Coordinator& coordinator) const {
  // A smaller one frees nothing before its coordinator has answered.
  const int64_t free = capacity_ - total_held();
  return std::min(coordinator.share, coordinator.held + free);
}

KvGrants::Grant KvGrants::Tell(uint64_t coordinator) {
  Grant grant;
  for (const Coordinator& each : coordinators_) {
    if (each.id != coordinator) grant.other_sessions += each.report.sessions;
  }
  Coordinator* const found = Find(coordinator);
  if (found == nullptr) return grant;
  const int64_t next = NextGrant(*found);
  if (found->serial == 0 || next != found->granted) {
    found->serial = ++last_serial_;
    found->granted = next;
    found->held = std::max(found->held, next);
  }
  const wire::KvReport& report = found->report;
  if (report.need > 0 && next - report.reserved >= report.need &&
      found->offered != report.need_session) {
    found->offered = report.need_session;
    found->idle_reports = 0;
  }
  grant.serial = found->serial;
  grant.tokens = found->granted;
  return grant;
}

std::vector<uint64_t> KvGrants::Urgent() const {
  std::vector<uint64_t> ids;
  const bool some_wait = std::any_of(
      coordinators_.begin(), coordinators_.end(), [](const Coordinator& each) {
        return each.granted - each.report.reserved <
               std::max(each.report.need, each.report.wanted);
      });
  if (!some_wait) return ids;
  for (const Coordinator& each : coordinators_) {
    if (NextGrant(each) != each.granted) ids.push_back(each.id);
  }
  return ids;
}

int64_t KvGrants::held(uint64_t coordinator) const {
  const Coordinator* const found = Find(coordinator);
  return found == nullptr ? 0 : found->held;
}

int64_t KvGrants::total_held() const {
  int64_t total = 0;
  for (const Coordinator& each : coordinators_) total += each.held;
  return total;
}

}  // namespace nacre::worker
