#include "coordinator/api/receptions.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace nacre::coordinator {

int64_t Receptions::Received(const std::string& peer) const {
  return options_.received == nullptr ? 0 : options_.received(peer).value_or(0);
}

bool Receptions::Enter(Call call) {
  std::function<void()> refuse;
  bool ask = false;
  {
    absl::MutexLock lock(&mu_);
    if (static_cast<int>(calls_.size()) >= options_.max_calls) {
      const auto most = std::max_element(
          clients_.begin(), clients_.end(), [](const auto& a, const auto& b) {
            return a.second.size() < b.second.size();
          });
      const auto own = clients_.find(call.client);
      const size_t own_size = own == clients_.end() ? 0 : own->second.size();
      if (most == clients_.end() || most->second.size() <= own_size + 1) {
        return false;
      }
      refuse = Remove(most->second.back().owner, /*bytes=*/0).refuse;
    }
    Connection& connection = connections_[call.peer];
    if (++connection.num_calls == 1) {
      connection.handed_over = Received(call.peer);
    }
    Calls& calls = clients_[call.client];
    const void* owner = call.owner;
    calls.push_back(std::move(call));
    calls_[owner] = std::prev(calls.end());
    ask = options_.weigh_soon != nullptr && !std::exchange(asked_, true);
  }
  if (ask) options_.weigh_soon();
  if (refuse != nullptr) refuse();
  return true;
}

void Receptions::Leave(const void* owner, int64_t bytes) {
  Call call;  // destroyed without the lock: it may own much
  absl::MutexLock lock(&mu_);
  if (calls_.contains(owner)) call = Remove(owner, bytes);
}

Receptions::Call Receptions::Remove(const void* owner, int64_t bytes) {
  const Calls::iterator it = calls_.at(owner);
  Call call = std::move(*it);
  calls_.erase(owner);
  const auto client = clients_.find(call.client);
  client->second.erase(it);
  if (client->second.empty()) clients_.erase(client);
  const auto connection = connections_.find(call.peer);
  connection->second.handed_over += bytes;
  if (--connection->second.num_calls == 0) connections_.erase(connection);
  return call;
}

std::vector<Receptions::Load> Receptions::Loads() {
  std::map<std::pair<const void*, const void*>, Load> loads;
  for (const auto& [client, calls] : clients_) {
    for (const Call& call : calls) {
      const auto connection = connections_.find(call.peer);
      Load& load = loads[{&client, &connection->first}];
      load.client = &client;
      load.peer = &connection->first;
      ++load.num_calls;
    }
  }
  absl::flat_hash_map<const std::string*, int64_t> unread;
  for (auto& [peer, connection] : connections_) {
    const int64_t received = Received(peer);
    // What comes with a request, its headers, is no part of it.
    connection.handed_over = std::min(connection.handed_over, received);
    unread[&peer] = received - connection.handed_over;
  }
  std::vector<Load> all;
  for (auto& [key, load] : loads) {
    load.bytes = unread[load.peer] * load.num_calls /
                 connections_.at(*load.peer).num_calls;
    all.push_back(load);
  }
  return all;
}

void Receptions::RefuseAll(const std::string& client, const std::string& peer,
                           Refusals* refusals) {
  std::vector<const void*> owners;
  for (const Call& call : clients_.at(client)) {
    if (call.peer == peer) owners.push_back(call.owner);
  }
  for (const void* owner : owners) {
    refusals->push_back(Remove(owner, /*bytes=*/0).refuse);
  }
}

void Receptions::Weigh() {
  Refusals refusals;
  bool ask = false;
  {
    absl::MutexLock lock(&mu_);
    int64_t total = 0;
    std::map<std::string, int64_t> by_client;
    std::vector<Load> loads = Loads();
    for (const Load& load : loads) {
      total += load.bytes;
      by_client[*load.client] += load.bytes;
    }
    while (total > options_.max_bytes) {
      const auto heaviest = std::max_element(
          loads.begin(), loads.end(), [&](const Load& a, const Load& b) {
            return std::make_pair(by_client[*a.client], a.bytes) <
                   std::make_pair(by_client[*b.client], b.bytes);
          });
      const std::string client = *heaviest->client;
      const std::string peer = *heaviest->peer;
      total -= heaviest->bytes;
      by_client[client] -= heaviest->bytes;
      loads.erase(heaviest);
      RefuseAll(client, peer, &refusals);
      // The rest of what came there is the other clients', few perhaps.
      const auto connection = connections_.find(peer);
      if (connection != connections_.end()) {
        connection->second.handed_over = Received(peer);
      }
    }
    ask = options_.weigh_soon != nullptr && !calls_.empty();
    asked_ = ask;
  }
  for (const std::function<void()>& refuse : refusals) refuse();
  if (ask) options_.weigh_soon();
}

}  // namespace nacre::coordinator
