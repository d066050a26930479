// What a target makes of the features that it keeps, for a draft that runs
// elsewhere: a row for each position.
//
// Thread-compatible: the target's model's thread.

#ifndef MODEL_FEATURE_SOURCE_H_
#define MODEL_FEATURE_SOURCE_H_

#include <string>
#include <vector>

namespace nacre::model {

class FeatureSource {
 public:
  virtual ~FeatureSource() = default;

  // Numbers of a row.
  virtual int size() const = 0;
  // Of the draft that they are for.
  virtual const std::string& draft_fingerprint() const = 0;
  // Of `count` rows of the model's last forward, from `row` on: appends
  // [count, size()] to `out`.
  virtual void Project(int row, int count, std::vector<float>* out) = 0;
};

}  // namespace nacre::model

#endif  // MODEL_FEATURE_SOURCE_H_
