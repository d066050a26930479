#include "tools/cluster/temporary_folder.h"

#include <stdlib.h>

#include <filesystem>
#include <system_error>

#include "common/check.h"

namespace nacre::tools {

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  path_ =
      (std::filesystem::temp_directory_path(error) / "nacre-XXXXXX").string();
  NACRE_CHECK(mkdtemp(path_.data()) != nullptr, path_.c_str());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace nacre::tools
