// A fixture of tests that parse one GenerateRequest of the public API.

#ifndef TESTS_COORDINATOR_API_PARSED_REQUEST_H_
#define TESTS_COORDINATOR_API_PARSED_REQUEST_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/statusor.h"
#include "coordinator/api/request_convert.h"
#include "tests/coordinator/byte_tokenizer.h"

namespace nacre::coordinator {

// Its model has the bytes as tokens and a context of 101.
class ParsedRequestTest : public ::testing::Test {
 protected:
  ParsedRequestTest() {
    model_.model_name = "pearl";
    model_.model_vocab_size = 300;
    model_.tokenizer_vocab_size = ByteTokenizer::kVocabSize;
    model_.context_length = 101;
  }

  absl::StatusOr<RequestSpec> Parse() {
    return ParseRequest(FieldsOf(request_), tokenizer_, model_);
  }
  // `part`: of the message.
  void ExpectError(absl::StatusCode code, const std::string& part) {
    const absl::StatusOr<RequestSpec> spec = Parse();
    EXPECT_EQ(spec.status().code(), code) << part;
    EXPECT_THAT(std::string(spec.status().message()),
                ::testing::HasSubstr(part));
  }
  void ExpectInvalid(const std::string& part) {
    ExpectError(absl::StatusCode::kInvalidArgument, part);
  }

  ByteTokenizer tokenizer_;
  WorkerInfo model_;
  v1::GenerateRequest request_;
};

}  // namespace nacre::coordinator

#endif  // TESTS_COORDINATOR_API_PARSED_REQUEST_H_
