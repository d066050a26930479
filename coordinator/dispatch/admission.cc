#include "coordinator/dispatch/admission.h"

#include <iterator>
#include <utility>

namespace nacre::coordinator {

void Admission::Push(uint64_t id, std::string request_class, bool ahead) {
  const uint64_t place = ahead ? next_ahead_++ : next_place_++;
  const auto of_class = classes_.try_emplace(std::move(request_class)).first;
  const auto entry = queue_.emplace(place, Entry{id, of_class}).first;
  Places& places = of_class->second;
  if (places.empty() || place < *places.begin()) {
    if (!places.empty()) firsts_.erase(*places.begin());
    firsts_.emplace(place, entry);
  }
  places.insert(place);
  places_[id] = place;
}

bool Admission::Remove(uint64_t id) {
  const auto place = places_.find(id);
  if (place == places_.end()) return false;
  Erase(queue_.find(place->second));
  return true;
}

absl::optional<uint64_t> Admission::Pop(
    absl::FunctionRef<bool(uint64_t id)> has_room,
    absl::FunctionRef<void(uint64_t id)> keep_free) {
  for (const auto& [place, entry] : firsts_) {
    const uint64_t id = entry->second.id;
    if (has_room(id)) {
      started_.insert(place);
      if (started_.size() > kMaxPasses) started_.erase(started_.begin());
      Erase(entry);
      return id;
    }
    if (IsPassedOften(place)) keep_free(id);
  }
  return absl::nullopt;
}

absl::optional<uint64_t> Admission::First(
    absl::FunctionRef<bool(uint64_t id)> suits) const {
  // Of a class all suit alike.
  for (const auto& [place, entry] : firsts_) {
    if (suits(entry->second.id)) return entry->second.id;
  }
  return absl::nullopt;
}

void Admission::Erase(Queue::iterator entry) {
  const uint64_t place = entry->first;
  const auto of_class = entry->second.of_class;
  Places& places = of_class->second;
  if (*places.begin() == place) {
    firsts_.erase(place);
    if (places.size() > 1) {
      const uint64_t next = *std::next(places.begin());
      firsts_.emplace(next, queue_.find(next));
    }
  }
  places.erase(place);
  if (places.empty()) classes_.erase(of_class);
  places_.erase(entry->second.id);
  queue_.erase(entry);
}

bool Admission::IsPassedOften(uint64_t place) const {
  return place < kFirstPlace ||
         (started_.size() == kMaxPasses && place < *started_.begin());
}

int Admission::PlaceOf(uint64_t id) const {
  const auto entry = queue_.find(places_.at(id));
  // Few resume, and each of the others is near the end when it comes.
  return static_cast<int>(entry->first < kFirstPlace
                              ? std::distance(queue_.begin(), entry)
                              : waiting() - std::distance(entry, queue_.end()));
}

std::vector<uint64_t> Admission::queue() const {
  std::vector<uint64_t> ids;
  ids.reserve(queue_.size());
  for (const auto& [place, entry] : queue_) ids.push_back(entry.id);
  return ids;
}

}  // namespace nacre::coordinator
