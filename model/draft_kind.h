// What the folder of a draft is meant to be, whether or not it can be read: for
// messages about one that was given in another's place.
//
// Pure functions over files.

#ifndef MODEL_DRAFT_KIND_H_
#define MODEL_DRAFT_KIND_H_

#include <string>

namespace nacre::model {

enum class DraftKind { kUnknown, kModel, kMedusa, kEagle, kGlide };

// Of a folder, or of a file and what is beside it.
DraftKind FindDraftKind(const std::string& path);

}  // namespace nacre::model

#endif  // MODEL_DRAFT_KIND_H_
