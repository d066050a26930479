// What the models of a simulated fleet say, without computing it. The target's
// token of each position is a hash of request and position. Among the draft's
// candidates it has the rank that a match source says. Which request a row is
// of is told by the seed of its draw.
//
// One thread.

#ifndef SIMULATION_SCRIPT_H_
#define SIMULATION_SCRIPT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "simulation/match_source.h"
#include "simulation/random.h"
#include "tokenizer/tokenizer.h"

namespace nacre::simulation {

class Script {
 public:
  static constexpr int kVocabulary = 64;

  // The running request of one stream.
  struct Request {
    uint64_t number = 0;  // stream + n * streams + 1; 0: none has run
    std::shared_ptr<MatchSource> matches;
    int64_t first_match = 0;  // the one of its first generated token
    int prompt_length = 0;
    int output_tokens = 0;
  };

  explicit Script(int streams) : requests_(static_cast<size_t>(streams)) {}

  Request& OfStream(int stream) {
    return requests_[static_cast<size_t>(stream)];
  }
  // Null once it has ended and another one runs.
  Request* Find(uint64_t number) {
    Request& found = requests_[(number - 1) % requests_.size()];
    return found.number == number ? &found : nullptr;
  }

  static int32_t TargetToken(uint64_t number, int position) {
    return static_cast<int32_t>(
        MixBits(MixBits(number) + static_cast<uint64_t>(position)) %
        kVocabulary);
  }
  // The draft's candidate at `place`, from 0, where the target's token has
  // `rank`: of different places different ones.
  static int32_t DraftToken(uint64_t number, int position, int place,
                            int rank) {
    const int32_t token_id = TargetToken(number, position);
    return place == rank - 1 ? token_id : (token_id + 1 + place) % kVocabulary;
  }
  // What the draft says for a position whose prefix is the target's. Null: of a
  // request that has ended.
  const Guess* GuessAt(uint64_t number, int position) {
    const Request* request = Find(number);
    if (request == nullptr) return nullptr;
    return &request->matches->GuessAt(request->first_match + position -
                                      request->prompt_length);
  }
  // ... whose prefix ends with `path`, some of which is wrong.
  const Guess* GuessBehind(uint64_t number, absl::Span<const int32_t> path) {
    const Request* request = Find(number);
    if (request == nullptr) return nullptr;
    uint64_t bits = MixBits(number);
    for (const int32_t id : path) {
      bits = MixBits(bits + static_cast<uint64_t>(id));
    }
    return &request->matches->GuessElsewhere(bits);
  }

 private:
  std::vector<Request> requests_;
};

// Token id i is a letter.
class ScriptTokenizer final : public tokenizer::Tokenizer {
 public:
  ScriptTokenizer() {
    std::vector<std::string> pieces;
    pieces.reserve(Script::kVocabulary);
    for (int id = 0; id < Script::kVocabulary; ++id) {
      pieces.emplace_back(1, Letter(id));
    }
    vocabulary_ = tokenizer::Vocabulary(std::move(pieces));
    special_.assign(Script::kVocabulary, false);
  }
  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text, tokenizer::EncodeOptions) const override {
    std::vector<int32_t> ids;
    for (const char letter : text) ids.push_back(letter - Letter(0));
    return ids;
  }
  std::unique_ptr<tokenizer::IncrementalDecoder> NewDecoder(
      bool /*skip_special_tokens*/) const override {
    return std::make_unique<Decoder>();
  }

 private:
  class Decoder final : public tokenizer::IncrementalDecoder {
   public:
    void Append(int32_t id, std::string* text) override {
      text->push_back(Letter(id));
    }
    void Finish(std::string*) override {}
  };
  static char Letter(int32_t id) { return static_cast<char>('0' + id); }
};

}  // namespace nacre::simulation

#endif  // SIMULATION_SCRIPT_H_
