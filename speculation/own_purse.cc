#include "speculation/own_purse.h"

#include <algorithm>

namespace nacre::speculation {

void OwnPurse::Put(double steps) { held_ = std::min(kMost, held_ + steps); }

bool OwnPurse::FillUp(double steps, SuffixAccount* account) {
  const double lacks = steps - account->budget();
  if (lacks <= 0) return true;
  if (lacks > std::min(held_, account->may_draw())) return false;
  held_ -= lacks;
  account->Draw(lacks);
  return true;
}

}  // namespace nacre::speculation
