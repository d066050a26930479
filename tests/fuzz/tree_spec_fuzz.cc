// Any bytes as the name of a tree's shape, a list of paths above all: refused
// with words, or read, and then the name that is made of it reads the same.
//
// Input: the name. One that begins with '[' is a list.

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/check.h"
#include "speculation/tree_spec.h"

namespace spec = nacre::speculation;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string name(reinterpret_cast<const char*>(data), size);
  if (!name.empty() && name[0] == '[') name = "static:" + name;
  const auto parsed = spec::ParseTreeSpec(name);
  if (!parsed.ok()) {
    NACRE_CHECK(!parsed.status().message().empty(), "an error without words");
    return 0;
  }
  NACRE_CHECK(parsed->nodes.size() <= size_t{spec::kMaxShapeNodes} &&
                  spec::ShapeDepth(*parsed) <= spec::kMaxShapeDepth,
              "a shape over its limits");
  const auto again = spec::ParseTreeSpec(spec::TreeSpecName(*parsed));
  NACRE_CHECK(again.ok() && *again == *parsed, "a name that reads otherwise");
  return 0;
}
