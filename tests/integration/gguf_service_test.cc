// The bundled pair as GGUF files through the real processes: the tokens of the
// folders that they were made from; and of integers, those of their floats.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/files.h"
#include "tests/integration/service_fixture.h"
#include "tests/testing/gguf_checkpoint.h"
#include "tests/testing/gguf_vocabulary.h"
#include "tests/testing/tiny_checkpoint.h"
#include "tokenizer/sentencepiece_model.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::integration {
namespace {

constexpr int kMaxTokens = 24;

std::string WriteGguf(const std::string& model_dir, const std::string& path,
                      bool quantizes = false) {
  gguf::GgufWriter writer = quantizes
                                ? testing::QuantizedGgufOfCheckpoint(model_dir)
                                : testing::GgufOfCheckpoint(model_dir);
  gguf::AddVocabulary(*tokenizer::ParseSentencePieceModel(
                          *ReadFile(model_dir + "/tokenizer.model")),
                      &writer);
  testing::WriteFile(path, writer.Bytes());
  return path;
}

std::vector<std::vector<int32_t>> Answers(Service& service) {
  std::vector<std::vector<int32_t>> answers;
  for (const v1::Method method : {v1::METHOD_AR, v1::METHOD_ASYNC}) {
    for (const float temperature : {0.0f, 0.8f}) {
      v1::GenerateRequest request =
          Request("Question: A baker makes", method, kMaxTokens);
      request.mutable_sampling()->set_temperature(temperature);
      request.mutable_sampling()->set_seed(7);
      const auto complete = service.Generate(request);
      EXPECT_TRUE(complete.ok()) << complete.status();
      if (!complete.ok()) return answers;
      answers.emplace_back(complete->token_ids().begin(),
                           complete->token_ids().end());
    }
  }
  return answers;
}

TEST(GgufServiceTest, FilesGiveTheTokensOfTheirFolders) {
  const tools::TemporaryFolder folder;
  const std::string target =
      WriteGguf(TargetModel(), folder.path() + "/target.gguf");
  const std::string draft =
      WriteGguf(DraftModel(), folder.path() + "/draft.gguf");
  std::vector<std::vector<int32_t>> expected;
  {
    Service folders;
    expected = Answers(folders);
  }
  ASSERT_EQ(expected.size(), 4u);
  EXPECT_EQ(expected[0], expected[2]);
  EXPECT_EQ(expected[1], expected[3]);
  Service files(1, target, draft);
  EXPECT_EQ(Answers(files), expected);
  for (const v1::WorkerInfo& worker : files.Workers()) {
    EXPECT_TRUE(worker.hello().model_name() == "target.gguf" ||
                worker.hello().model_name() == "draft.gguf")
        << worker.hello().model_name();
  }
}

// The target in Q4_K and Q6_K, what is down in F16, the draft in Q8_0.
TEST(GgufServiceTest, IntegersGiveTheTokensOfTheirFloats) {
  const tools::TemporaryFolder folder;
  const std::string target =
      WriteGguf(TargetModel(), folder.path() + "/target.gguf", true);
  const std::string draft =
      WriteGguf(DraftModel(), folder.path() + "/draft.gguf", true);
  const auto answers = [&](const std::string& weights) {
    tools::Cluster::Options options = Service::Options(1, target, draft);
    options.more_args.worker = {"--weights", weights};
    Service service(std::move(options));
    return Answers(service);
  };
  const std::vector<std::vector<int32_t>> expected = answers("f32");
  ASSERT_EQ(expected.size(), 4u);
  EXPECT_EQ(expected[0], expected[2]);
  EXPECT_EQ(expected[1], expected[3]);
  EXPECT_EQ(answers("auto"), expected);
}

}  // namespace
}  // namespace nacre::integration
