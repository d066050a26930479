// A SentencePiece vocabulary as llama.cpp's converter writes it.
//
// Pure function.

#ifndef TESTS_TESTING_GGUF_VOCABULARY_H_
#define TESTS_TESTING_GGUF_VOCABULARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/gguf_writer.h"
#include "tokenizer/sentencepiece_model.h"

namespace nacre::gguf {

// And three rows that the model has and the vocabulary lacks.
inline void AddVocabulary(const tokenizer::SentencePieceModel& model,
                          GgufWriter* writer) {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<float> scores;
  for (const tokenizer::SentencePiece& piece : model.pieces) {
    tokens.push_back(piece.text);
    types.push_back(static_cast<int32_t>(piece.type));
    scores.push_back(piece.score);
  }
  for (int i = 0; i < 3; ++i) {
    tokens.push_back(absl::StrCat("[PAD", tokens.size(), "]"));
    types.push_back(static_cast<int32_t>(tokenizer::PieceType::kUnused));
    scores.push_back(-1000);
  }
  writer->String("tokenizer.ggml.model", "llama")
      .String("tokenizer.ggml.pre", "default")
      .Strings("tokenizer.ggml.tokens", tokens)
      .Numbers("tokenizer.ggml.token_type", GgufWriter::kI32, types)
      .Numbers("tokenizer.ggml.scores", GgufWriter::kF32, scores)
      .U32("tokenizer.ggml.bos_token_id", 1)
      .U32("tokenizer.ggml.eos_token_id", 2);
}

}  // namespace nacre::gguf

#endif  // TESTS_TESTING_GGUF_VOCABULARY_H_
