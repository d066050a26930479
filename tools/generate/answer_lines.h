// What is said of an answer on a terminal.
//
// Pure functions.

#ifndef TOOLS_GENERATE_ANSWER_LINES_H_
#define TOOLS_GENERATE_ANSWER_LINES_H_

#include <string>

#include "proto/inference.pb.h"

namespace nacre::tools {

// Several lines: usage, times, what speculation came to and how long each
// worker waited for the other. The last has no end.
std::string Summary(const v1::Complete& complete);

// The most important of it in one line.
std::string SpeedLine(const v1::Complete& complete);

}  // namespace nacre::tools

#endif  // TOOLS_GENERATE_ANSWER_LINES_H_
