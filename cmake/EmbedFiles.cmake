# Writes a source that holds files: cmake -DOUT=a.cc -DFILES="a;b" -P this.
# The source defines UiContent() of gateway/ui_content.h.
set(entries)
foreach(path ${FILES})
  cmake_path(GET path FILENAME name)
  file(READ ${path} hex HEX)
  file(SIZE ${path} size)
  # A line of source for each 32 bytes.
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" escaped "${hex}")
  string(REPEAT "...." 32 line)
  string(REGEX REPLACE "(${line})" "\\1\"\n     \"" escaped "${escaped}")
  string(APPEND entries
         "    {\"${name}\", {\"${escaped}\", ${size}}},\n")
endforeach()
file(WRITE ${OUT} "// Made by cmake/EmbedFiles.cmake.
#include \"gateway/ui_content.h\"

namespace nacre::gateway {

absl::Span<const UiFile> UiContent() {
  static constexpr UiFile kFiles[] = {
${entries}  };
  return kFiles;
}

}  // namespace nacre::gateway
")
