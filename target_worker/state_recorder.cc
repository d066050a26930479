#include "target_worker/state_recorder.h"

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"

namespace nacre::target_worker {

void RecordStates(const RecordedStates& recorded, worker::FeatureFile* file) {
  if (recorded.num_tokens == 0) return;
  const size_t size =
      recorded.states.size() / static_cast<size_t>(recorded.num_tokens);
  std::string lines;
  for (int i = 0; i < recorded.num_tokens; ++i) {
    absl::StrAppend(&lines,
                    "{\"request\":", worker::JsonString(recorded.request_id),
                    ",\"session\":", recorded.session_id,
                    ",\"position\":", recorded.position + i);
    const absl::optional<int64_t> state = file->hidden()->Append(
        recorded.states.subspan(static_cast<size_t>(i) * size, size));
    if (state.has_value()) absl::StrAppend(&lines, ",\"state\":", *state);
    absl::StrAppend(&lines, "}\n");
  }
  file->Write(lines, recorded.num_tokens);
}

}  // namespace nacre::target_worker
