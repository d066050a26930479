#include "target_worker/text_rows.h"

#include <cstddef>

#include "target_worker/engine_session.h"

namespace nacre::target_worker {

void FindTextRows(const EngineSession& session, int first_row,
                  std::vector<TextRow>* rows) {
  rows->clear();
  const int prefill = session.prefill_rows;
  const bool has_verified = static_cast<int>(session.fed.size()) > prefill;
  // The row after those of the prompt fed the last token committed before.
  const int tokens = has_verified ? static_cast<int>(session.drawn.size()) : 0;
  const int first = has_verified
                        ? session.schedule.committed_length() - tokens - 1
                        : session.sequence->length();
  for (int i = 0; i < prefill; ++i) {
    rows->push_back({first - prefill + i, first_row + i});
  }
  for (int i = 0; i < tokens; ++i) {
    rows->push_back({first + i, first_row + prefill +
                                    session.walked[static_cast<size_t>(i)]});
  }
}

}  // namespace nacre::target_worker
