// common/mapped_file.h under the name that readers of weights use.

#ifndef MODEL_MAPPED_FILE_H_
#define MODEL_MAPPED_FILE_H_

#include "common/mapped_file.h"

namespace nacre::model {

using nacre::MappedFile;

}  // namespace nacre::model

#endif  // MODEL_MAPPED_FILE_H_
