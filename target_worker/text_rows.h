// Which rows of a step fed tokens that are text now: those of prompts, and of a
// verified tree the path that was accepted.
//
// Pure.

#ifndef TARGET_WORKER_TEXT_ROWS_H_
#define TARGET_WORKER_TEXT_ROWS_H_

#include <vector>

namespace nacre::target_worker {

struct EngineSession;  // engine_session.h

struct TextRow {
  int position = 0;  // of the token that was fed
  int row = 0;       // of the step
};

// Of a session of exact match, after the step's verdicts, in the order of
// positions. `first_row`: of the session in the step.
void FindTextRows(const EngineSession& session, int first_row,
                  std::vector<TextRow>* rows);

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_TEXT_ROWS_H_
