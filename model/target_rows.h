// Keys and values of a text out of the cache of the model that has computed
// them, as a draft elsewhere reads them (TargetRowShape).
//
// The model's thread.

#ifndef MODEL_TARGET_ROWS_H_
#define MODEL_TARGET_ROWS_H_

#include <vector>

#include "absl/status/status.h"
#include "model/language_model.h"

namespace nacre::model {

// Whether a draft that reads such rows can read them of this model.
// INVALID_ARGUMENT with both numbers where they are of another shape;
// UNIMPLEMENTED for a model that shows no keys, keeps parts of heads apart, or
// is not of the host.
absl::Status CheckTargetRows(const LanguageModel& model,
                             const TargetRowShape& shape);

// Positions first..first+count-1, all below sequence.length(), of a model that
// was checked.                              rows [count, shape.row_size()]
void ReadTargetRows(LanguageModel* model, const Sequence& sequence,
                    const TargetRowShape& shape, int first, int count,
                    std::vector<float>* rows);

}  // namespace nacre::model

#endif  // MODEL_TARGET_ROWS_H_
