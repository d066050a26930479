// A folder of this process's own, removed with all that is in it at the end.

#ifndef TOOLS_CLUSTER_TEMPORARY_FOLDER_H_
#define TOOLS_CLUSTER_TEMPORARY_FOLDER_H_

#include <string>

namespace nacre::tools {

class TemporaryFolder {
 public:
  // Under $TMPDIR or /tmp. Aborts where nothing can be made there: nothing
  // else of ours would run.
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace nacre::tools

#endif  // TOOLS_CLUSTER_TEMPORARY_FOLDER_H_
