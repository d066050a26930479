// Which names of jinja2 a template may use.
//
// Pure functions.

#ifndef CHAT_SUPPORTED_H_
#define CHAT_SUPPORTED_H_

#include <string_view>

namespace nacre::chat {

// Globals of jinja2 that are refused: cycler, joiner, lipsum.
bool IsRefusedName(std::string_view name);
// Methods of Python's strings and dicts that are refused where they are called.
bool IsRefusedMethod(std::string_view name);
// true, false, none and their capitalized forms: no variables.
bool IsConstantName(std::string_view name);

}  // namespace nacre::chat

#endif  // CHAT_SUPPORTED_H_
