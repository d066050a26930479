// How far into a text attention costs as much as all weights do.
//
// A pure function.

#ifndef MODEL_EVEN_POSITIONS_H_
#define MODEL_EVEN_POSITIONS_H_

#include "model/config.h"

namespace nacre::model {

// Positions before a row that cost it as many multiplications as the matrices
// of all layers do: what ModelInfo::even_positions says. Layers with a window
// are left out, for what they attend to ends. 0: all have one.
int EvenPositions(const ModelConfig& config);

}  // namespace nacre::model

#endif  // MODEL_EVEN_POSITIONS_H_
