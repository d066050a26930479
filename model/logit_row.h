// Passes over a row of logits, vectorized, and the same result on every SIMD
// target. A row is cut into groups of 64 token ids whose largest values are
// found first: what looks for large values skips most groups.
//
// "Scaled" is logit / temperature, rounded to float32. NaN is never large
// enough for anything.
//
// Thread-safe: pure functions.

#ifndef MODEL_LOGIT_ROW_H_
#define MODEL_LOGIT_ROW_H_

#include <cstddef>
#include <cstdint>
#include <limits>

namespace nacre::model {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kLowest = std::numeric_limits<float>::lowest();

inline constexpr int kGroupTokens = 64;
// The first token of a group.
constexpr ptrdiff_t FirstOfGroup(int group) {
  return ptrdiff_t{kGroupTokens} * group;
}

inline int NumGroups(int count) {
  return (count + kGroupTokens - 1) / kGroupTokens;
}

// Elements that passes may write past what they return.
inline constexpr int kSlack = 64;

struct LogitRow {
  const float* logits = nullptr;  // [count]
  // Of each group the largest scaled value, -inf if there is none.
  //                                           [NumGroups(count) + kSlack]
  const float* maxima = nullptr;
  int count = 0;
  float temperature = 1.0f;
};

// Groups [begin, end).
struct GroupRange {
  int begin = 0;
  int end = 0;
};

inline GroupRange AllGroups(const LogitRow& row) {
  return {0, NumGroups(row.count)};
}

// maxima[g] = the largest logit of group g.
void FindMaxima(const float* logits, int count, GroupRange groups,
                float* maxima);

// maxima[g] /= temperature.
void ScaleMaxima(float temperature, GroupRange groups, float* maxima);

// Whether a sound forward can have given the row. Then no value is NaN or +inf,
// and at least one is finite (-inf masks a token).
bool IsSoundRow(const float* logits, int count);

// The largest value, NaN aside; -inf if there is none.
float Largest(const float* values, int count);

// The n-th id, n >= 1, whose scaled value is `scaled`; -1 if there is none.
int32_t FindScaled(const LogitRow& row, GroupRange groups, float scaled,
                   int n = 1);

// Appends, in the order of ids, all scaled values in [lowest, below) to
// values[num_values], and their ids to `ids` unless it is null. Returns the
// number of values then there.          values, ids [count + kSlack]
int CollectScaled(const LogitRow& row, float lowest, float below,
                  int num_values, float* values, int32_t* ids);

}  // namespace nacre::model

#endif  // MODEL_LOGIT_ROW_H_
