// How long work (loading, inflating) tells how far it is.

#ifndef MODEL_PROGRESS_H_
#define MODEL_PROGRESS_H_

#include <functional>

#include "absl/strings/string_view.h"

namespace nacre::model {

// `stage` names what is being done, e.g. "weights"; `fraction` of it is done,
// in [0, 1], never falling within a stage. Called on the thread that does the
// work.
using ProgressCallback =
    std::function<void(absl::string_view stage, double fraction)>;

}  // namespace nacre::model

#endif  // MODEL_PROGRESS_H_
