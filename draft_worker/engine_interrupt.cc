// When the draft engine abandons a step: the question that a forward asks
// between its layers.

#include <algorithm>
#include <utility>

#include "draft_worker/draft_engine.h"
#include "draft_worker/engine_session.h"

namespace nacre::draft_worker {
namespace {

// Whether a commit has another token somewhere in what the draft has, or goes
// beyond it. The token that is being drafted would then stand after other
// tokens.
bool Contradicts(const speculation::Commit& commit,
                 const std::vector<int32_t>& tokens) {
  if (commit.first_position < 0) return false;  // malformed
  const auto first = static_cast<size_t>(commit.first_position);
  for (size_t i = 0; i < commit.token_ids.size(); ++i) {
    const size_t position = first + i;
    if (position >= tokens.size() || tokens[position] != commit.token_ids[i]) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool DraftEngine::IsStepPointless() {
  if (!in_forward_ || !HasCommands()) return false;
  LookAtCommands(
      [this](const DraftCommands& commands) { NotePointless(commands); });
  return std::all_of(stepping().begin(), stepping().end(),
                     [](const Session* session) { return session->pointless; });
}

void DraftEngine::NotePointless(const DraftCommands& commands) {
  for (const auto& [id, commit] : commands.commits) {
    Session* const session = sessions_.Find({commands.stream, id});
    // Rows of a prompt are of use whatever comes after them.
    if (session == nullptr || !session->drafts) continue;
    const bool keeps = session->schedule.tree() != nullptr
                           ? session->schedule.KeepsStep(commit)
                           : !Contradicts(commit, session->schedule.tokens());
    if (!keeps) session->pointless = true;
  }
  for (const uint64_t id : commands.close) {
    if (Session* const session = sessions_.Find({commands.stream, id})) {
      session->pointless = true;
    }
  }
  if (!commands.stream_ended) return;
  for (Session* const session : stepping()) {
    if (session->stream == commands.stream) session->pointless = true;
  }
}

}  // namespace nacre::draft_worker
