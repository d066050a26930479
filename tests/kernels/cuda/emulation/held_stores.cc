#include "tests/kernels/cuda/emulation/held_stores.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

namespace nacre::kernels::cuda::emulation {
namespace {

struct HeldStore {
  StorePlace from;
  void* to;
  std::array<char, 8> value;
  int bytes;
  bool late = false;  // until the launch is over
};
std::deque<HeldStore> held_stores;

template <typename Is>
void LandAll(const Is& is) {
  for (const HeldStore& store : held_stores) {
    if (is(store)) std::memcpy(store.to, store.value.data(), store.bytes);
  }
  std::erase_if(held_stores, is);
}

bool IsOfBlock(const HeldStore& store, const StorePlace& place) {
  return store.from.launch == place.launch && store.from.block == place.block;
}

}  // namespace

void HoldStore(const StorePlace& from, void* to, const void* value, int bytes) {
  HeldStore store = {from, to, {}, bytes};
  std::memcpy(store.value.data(), value, bytes);
  held_stores.push_back(store);
}

void LandStoresBehind(const StorePlace& place) {
  LandAll([&](const HeldStore& store) {
    if (!IsOfBlock(store, place) || store.late) return false;
    const StorePlace& from = store.from;
    return from.thread == place.thread ||
           (from.warp == place.warp && from.barriers[0] < place.barriers[0]) ||
           (from.group == place.group &&
            from.barriers[1] < place.barriers[1]) ||
           from.barriers[2] < place.barriers[2];
  });
}

void HoldStoresBack(const StorePlace& place) {
  for (HeldStore& store : held_stores) {
    if (IsOfBlock(store, place)) store.late = true;
  }
}

void LandStores(const void* launch) {
  LandAll([=](const HeldStore& store) { return store.from.launch == launch; });
}

}  // namespace nacre::kernels::cuda::emulation
