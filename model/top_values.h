// Where a sorted list of values would be cut, without sorting it. Values carry
// masses, the largest values come first, and the list ends where the sum of
// masses reaches what is wanted. Top-k (every mass 1) and top-p are this.
//
// Thread-safe: pure functions.

#ifndef MODEL_TOP_VALUES_H_
#define MODEL_TOP_VALUES_H_

#include <cstdint>

namespace nacre::model {

// The last value that is kept, how many of those equal to it are, and the mass
// of all that is kept.
struct TopCut {
  float value = 0.0f;
  int num_equal = 0;
  int64_t mass = 0;
};

// Two lists of values and masses, [size + kSlack] each. What is cut is `from`;
// both are overwritten.
struct ValueList {
  float* values = nullptr;
  int32_t* masses = nullptr;
};

// Values are finite, masses >= 0 and equal where the values are. `wanted` is
// above 0 and at most the sum of all masses; a sum reaches it when, as a
// double, it is not below.
TopCut CutAtMass(ValueList from, ValueList spare, int size, double wanted);

}  // namespace nacre::model

#endif  // MODEL_TOP_VALUES_H_
