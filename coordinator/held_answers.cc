#include "coordinator/held_answers.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace nacre::coordinator {

absl::Status HeldAnswers::Enter(Answer answer) {
  const int64_t bytes = answer.bytes;
  std::vector<Answer> evicted;
  bool taken = true;
  {
    absl::MutexLock lock(&mu_);
    while (taken && !answers_.empty() && answer.bytes > max_bytes_ - bytes_) {
      const auto most = std::max_element(
          clients_.begin(), clients_.end(), [](const auto& a, const auto& b) {
            return a.second.bytes < b.second.bytes;
          });
      const auto own = clients_.find(answer.client);
      const int64_t own_bytes =
          answer.bytes + (own == clients_.end() ? 0 : own->second.bytes);
      taken = most->second.bytes > own_bytes;
      if (taken) evicted.push_back(Remove(most->second.answers.back().owner));
    }
    if (taken) {
      bytes_ += answer.bytes;
      Share& share = clients_[answer.client];
      share.bytes += answer.bytes;
      const void* owner = answer.owner;
      share.answers.push_back(std::move(answer));
      answers_[owner] = std::prev(share.answers.end());
    }
  }
  for (const Answer& other : evicted) other.cut_off();
  if (taken) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "no room for an answer of ", bytes, " bytes: at most ", max_bytes_,
      " bytes of answers wait for their clients; try again later"));
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
