// What a model computes on its way to its logits, and drafters read.

#ifndef MODEL_FEATURE_TAP_H_
#define MODEL_FEATURE_TAP_H_

namespace nacre::model {

struct FeatureTap {
  enum class Kind {
    kIn,     // what a layer is given; of the number of layers, what the last
             // one gives
    kFinal,  // after the final norm
    kKv,     // a layer's keys and values
  };
  Kind kind = Kind::kFinal;
  int layer = 0;  // from 0; of kIn and kKv
  bool operator==(const FeatureTap&) const = default;
};

}  // namespace nacre::model

#endif  // MODEL_FEATURE_TAP_H_
