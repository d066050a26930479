#include "coordinator/api/held_answers.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace nacre::coordinator {

absl::optional<std::vector<const void*>> HeldAnswers::MakesRoomFor(
    const Answer& answer) const {
  // What each client would have left.
  struct Rest {
    int64_t bytes = 0;
    std::list<Answer>::const_reverse_iterator last;
  };
  absl::flat_hash_map<absl::string_view, Rest> rests;
  for (const auto& [client, share] : clients_) {
    rests[client] = {share.bytes, share.answers.rbegin()};
  }
  std::vector<const void*> owners;
  int64_t room = max_bytes_ - bytes_;
  while (answer.bytes > room && owners.size() < answers_.size()) {
    const auto most = std::max_element(rests.begin(), rests.end(),
                                       [](const auto& a, const auto& b) {
                                         return a.second.bytes < b.second.bytes;
                                       });
    const auto own = rests.find(answer.client);
    const int64_t own_bytes =
        answer.bytes + (own == rests.end() ? 0 : own->second.bytes);
    Rest& rest = most->second;
    if (rest.bytes <= own_bytes) return absl::nullopt;
    owners.push_back(rest.last->owner);
    room += rest.last->bytes;
    rest.bytes -= rest.last->bytes;
    ++rest.last;
  }
  return owners;
}

absl::Status HeldAnswers::Enter(Answer answer) {
  const int64_t bytes = answer.bytes;
  std::vector<Answer> evicted;
  {
    absl::MutexLock lock(&mu_);
    const auto owners = MakesRoomFor(answer);
    if (!owners.has_value()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "no room for an answer of ", bytes, " bytes: at most ", max_bytes_,
          " bytes of answers wait for their clients; try again later"));
    }
    for (const void* owner : *owners) evicted.push_back(Remove(owner));
    bytes_ += bytes;
    Share& share = clients_[answer.client];
    share.bytes += bytes;
    const void* owner = answer.owner;
    share.answers.push_back(std::move(answer));
    answers_[owner] = std::prev(share.answers.end());
  }
  for (const Answer& other : evicted) other.cut_off();
  return absl::OkStatus();
}

void HeldAnswers::Leave(const void* owner) {
  Answer answer;  // destroyed without the lock: it may own much
  absl::MutexLock lock(&mu_);
  if (answers_.contains(owner)) answer = Remove(owner);
}

HeldAnswers::Answer HeldAnswers::Remove(const void* owner) {
  const std::list<Answer>::iterator it = answers_.at(owner);
  Answer answer = std::move(*it);
  answers_.erase(owner);
  bytes_ -= answer.bytes;
  const auto client = clients_.find(answer.client);
  client->second.bytes -= answer.bytes;
  client->second.answers.erase(it);
  if (client->second.answers.empty()) clients_.erase(client);
  return answer;
}

}  // namespace nacre::coordinator
