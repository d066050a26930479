// Memory in which a row of logits is looked at: a few arrays of the size of the
// vocabulary. Samplers of one thread share it, however many sessions there are.
//
// Thread-compatible.

#ifndef MODEL_SAMPLING_SCRATCH_H_
#define MODEL_SAMPLING_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/logit_row.h"

namespace nacre::model {

struct SamplingScratch {
  // Makes room for rows of `vocab_size` logits; nothing allocates after that.
  void Reserve(int vocab_size) {
    const size_t size = static_cast<size_t>(vocab_size) + kSlack;
    if (logits.size() >= size) return;
    logits.resize(size);
    maxima.resize(static_cast<size_t>(NumGroups(vocab_size)) + kSlack);
    for (auto* floats : {&values, &spare_values}) floats->resize(size);
    for (auto* integers : {&masses, &spare_masses}) integers->resize(size);
  }

  std::vector<float> logits;  // a changed copy of the row
  std::vector<float> maxima;  // of LogitRow
  std::vector<float> values;
  std::vector<float> spare_values;
  std::vector<int32_t> masses;
  std::vector<int32_t> spare_masses;
};

}  // namespace nacre::model

#endif  // MODEL_SAMPLING_SCRATCH_H_
