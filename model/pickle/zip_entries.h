// Where the files of a zip archive lie in it: of archives whose files are
// stored as they are, as PyTorch writes them. Zip64 included. Nothing in the
// archive is believed.
//
// A pure function.

#ifndef MODEL_PICKLE_ZIP_ENTRIES_H_
#define MODEL_PICKLE_ZIP_ENTRIES_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nacre::model {

struct ZipEntry {
  uint64_t offset = 0;  // of its first byte, from the start of the archive
  uint64_t size_bytes = 0;
};

// By name. INVALID_ARGUMENT for what is no zip archive or is malformed;
// UNIMPLEMENTED for files that are compressed or encrypted.
absl::StatusOr<std::map<std::string, ZipEntry>> ParseZip(
    absl::string_view archive);

}  // namespace nacre::model

#endif  // MODEL_PICKLE_ZIP_ENTRIES_H_
