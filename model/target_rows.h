// Keys and values of a text out of the cache of the model that has computed
// them, as a draft elsewhere reads them (LanguageModel::ReadTargetRows).
//
// The model's thread.

#ifndef MODEL_TARGET_ROWS_H_
#define MODEL_TARGET_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "model/language_model.h"

namespace nacre::model {

// INVALID_ARGUMENT with both numbers where `shape` is not that of what the
// model keeps; UNIMPLEMENTED where that lies on a device, or keeps parts of
// heads apart. `model`: whose kept_kv() is there.
absl::Status CheckKeptRows(const LanguageModel& model,
                           const TargetRowShape& shape);

// Positions first..first+count-1 of the table, of the last of `num_layers`
// layers. What was checked.                 rows [count, shape.row_size()]
void ReadKeptRows(const KeptKv& kv, int num_layers, const int32_t* table,
                  const TargetRowShape& shape, int first, int count,
                  std::vector<float>* rows);

}  // namespace nacre::model

#endif  // MODEL_TARGET_ROWS_H_
