// Startup failures of the real programs: one clear line on stderr, exit code 1,
// quickly.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/files.h"
#include "common/json.h"
#include "tests/integration/service_fixture.h"
#include "tools/cluster/child_process.h"

namespace nacre::integration {
namespace {

namespace fs = std::filesystem;
using tools::ChildProcess;

class StartupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ("nacre_startup_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A copy of a bundled model to damage.
  fs::path CopyModel(const std::string& name) {
    const fs::path copy = folder_ / (name + "-copy");
    fs::copy(
        fs::path(NACRE_MODELS) / name, copy,
        fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    return copy;
  }

  // Runs a program until it ends; how it ended.
  std::string Run(std::vector<std::string> argv) {
    argv[0] = std::string(NACRE_BIN "/") + argv[0];
    const std::string log = folder_ / "log";
    fs::remove(log);
    auto process = ChildProcess::Start({.argv = argv, .log_file = log});
    EXPECT_TRUE(process.ok()) << process.status();
    EXPECT_TRUE((*process)->WaitForEnd(absl::Minutes(1)));
    const auto content = ReadFile(log);
    output_ = content.ok() ? *content : "";
    return (*process)->Poll().value_or("still running");
  }

  std::string RunTarget(const fs::path& model) {
    return Run({"nacre-target-worker", "--model", model, "--coordinator",
                "127.0.0.1:1", "--cpus", "0"});
  }

  void ExpectFailure(const std::string& how, const std::string& words) {
    EXPECT_EQ(how, "exit code 1");
    EXPECT_NE(output_.find(words), std::string::npos) << output_;
  }

  fs::path folder_;
  std::string output_;
};

TEST_F(StartupTest, UnknownModelFolder) {
  ExpectFailure(RunTarget("/nonexistent/model"), "/nonexistent/model");
  ExpectFailure(Run({"nacre-coordinator", "--tokenizer", "/nonexistent/model",
                     "--listen", "127.0.0.1:0"}),
                "/nonexistent/model");
}

TEST_F(StartupTest, MedusaHeadsOfNoUse) {
  const auto run = [this](const char* program, const fs::path& heads) {
    return Run({program, "--model", fs::path(NACRE_MODELS) / "target",
                "--coordinator", "127.0.0.1:1", "--cpus", "0", "--medusa",
                heads});
  };
  ExpectFailure(run("nacre-target-worker", "/nonexistent/heads"),
                "/nonexistent/heads");
  ExpectFailure(run("nacre-target-worker", fs::path(NACRE_MODELS) / "draft"),
                "is none of Medusa heads");
  ExpectFailure(
      run("nacre-target-worker",
          fs::path(NACRE_TEST_DATA) / "model/medusa/medusa_v1"),
      "tensor 0.0.linear.weight has shape [20, 20], the config implies "
      "[256, 256]");
  ExpectFailure(run("nacre-draft-worker", "/nonexistent/heads"),
                "--medusa is for target workers");
}

TEST_F(StartupTest, AnEagleDraftOfNoUse) {
  const auto run = [this](const char* program, const fs::path& draft) {
    return Run({program, "--model", fs::path(NACRE_MODELS) / "target",
                "--coordinator", "127.0.0.1:1", "--cpus", "0", "--eagle",
                draft});
  };
  ExpectFailure(run("nacre-target-worker", "/nonexistent/draft"),
                "/nonexistent/draft");
  ExpectFailure(run("nacre-target-worker", fs::path(NACRE_MODELS) / "draft"),
                "is none of an EAGLE-1 draft");
  ExpectFailure(
      run("nacre-target-worker",
          fs::path(NACRE_TEST_DATA) / "model/eagle/safeailab"),
      "target_hidden_size, or else hidden_size, is 20, that of the target 256");
  ExpectFailure(run("nacre-draft-worker", "/nonexistent/draft"),
                "--eagle is for target workers");
}

TEST_F(StartupTest, AGlideDraftOfNoUse) {
  const auto run = [this](const char* program, const fs::path& draft) {
    return Run({program, "--model", fs::path(NACRE_MODELS) / "target",
                "--coordinator", "127.0.0.1:1", "--cpus", "0", "--glide",
                draft});
  };
  ExpectFailure(run("nacre-target-worker", fs::path(NACRE_MODELS) / "draft"),
                "large_num_attention_heads is missing");
  ExpectFailure(run("nacre-target-worker",
                    fs::path(NACRE_TEST_DATA) / "model/glide/one_layer"),
                "vocab_size is 40, that of the target 4096");
  ExpectFailure(run("nacre-draft-worker", "/nonexistent/draft"),
                "--glide is for target workers");
}

TEST_F(StartupTest, ADraftInAnothersPlace) {
  const fs::path models = NACRE_MODELS;
  const auto run = [this](const char* program, const fs::path& model,
                          std::vector<std::string> more) {
    std::vector<std::string> args = {program, "--model", model, "--coordinator",
                                     "127.0.0.1:1"};
    args.insert(args.end(), more.begin(), more.end());
    return Run(args);
  };
  ExpectFailure(run("nacre-draft-worker", models / "medusa", {}),
                "/medusa: Medusa heads, which --medusa of a target worker "
                "takes; --model takes a model");
  ExpectFailure(run("nacre-target-worker", models / "target",
                    {"--eagle", models / "glide"}),
                "/glide: a GliDe draft, which --glide of a target worker "
                "takes; --eagle takes an EAGLE draft");
  ExpectFailure(run("nacre-target-worker", models / "target",
                    {"--publish-features", models / "medusa"}),
                "/medusa: Medusa heads, which --medusa of a target worker "
                "takes; --publish-features takes an EAGLE draft");
  ExpectFailure(run("nacre-target-worker", models / "target",
                    {"--eagle", models / "eagle", "--tensor-parallel", "2"}),
                "--tensor-parallel 2 and --eagle exclude each other");
}

TEST_F(StartupTest, TruncatedWeights) {
  const fs::path model = CopyModel("draft");
  fs::resize_file(model / "model.safetensors", 100000);
  ExpectFailure(RunTarget(model), "model.safetensors");
}

TEST_F(StartupTest, LyingSafetensorsHeader) {
  const fs::path model = CopyModel("draft");
  std::fstream file(model / "model.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  const uint64_t length = uint64_t{1} << 60;
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file.close();
  ExpectFailure(RunTarget(model), "1152921504606846976");
}

// Well-formed, but no model: the first forward shows it, before it is said
// that the worker is ready.
TEST_F(StartupTest, WeightsThatAreNoNumbers) {
  const fs::path model = CopyModel("draft");
  std::fstream file(model / "model.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof(length));
  std::string text(length, ' ');
  file.read(text.data(), static_cast<std::streamsize>(length));
  const auto header = nlohmann::json::parse(text, nullptr, false);
  ASSERT_TRUE(header.is_object());
  const auto& tensor = header["model.norm.weight"];
  ASSERT_EQ(tensor["dtype"], "BF16");
  const uint64_t begin = tensor["data_offsets"][0];
  file.seekp(static_cast<std::streamoff>(sizeof(length) + length + begin));
  const uint16_t infinity = 0x7f80;
  file.write(reinterpret_cast<const char*>(&infinity), sizeof(infinity));
  file.close();
  for (const char* backend : {"cpu", "reference"}) {
    ExpectFailure(Run({"nacre-target-worker", "--model", model, "--coordinator",
                       "127.0.0.1:1", "--cpus", "0", "--backend", backend}),
                  "the weights are damaged, or the device computes wrongly");
    EXPECT_EQ(output_.find("serving on"), std::string::npos) << output_;
  }
  ExpectFailure(Run({"nacre-draft-worker", "--model", model, "--coordinator",
                     "127.0.0.1:1", "--cpus", "0"}),
                model.string() + ": the first forward gave no numbers");
}

TEST_F(StartupTest, ConfigThatDoesNotFitTheWeights) {
  const fs::path model = CopyModel("draft");
  const auto config = ReadFile(model / "config.json");
  ASSERT_TRUE(config.ok());
  std::string text = *config;
  const std::string from = "\"intermediate_size\": 344";
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, from.size(), "\"intermediate_size\": 345");
  std::ofstream(model / "config.json") << text;
  ExpectFailure(RunTarget(model), "345");
}

TEST_F(StartupTest, TakenPort) {
  Service service(/*drafts=*/0);
  ExpectFailure(
      Run({"nacre-coordinator", "--tokenizer", TargetModel(), "--listen",
           service.cluster().address(), "--registry-listen", "127.0.0.1:0",
           "--admin-listen", "127.0.0.1:0"}),
      "cannot listen on " + service.cluster().address());
}

TEST_F(StartupTest, ADraftWithAnotherVocabularyIsRefusedAndExits) {
  Service service(/*drafts=*/0);
  const fs::path model = CopyModel("draft");
  fs::copy_file(fs::path(NACRE_TEST_DATA) / "tokenizer" / "llama2.json",
                model / "tokenizer.json");
  ExpectFailure(Run({"nacre-draft-worker", "--model", model, "--coordinator",
                     service.cluster().registry_address(), "--cpus", "0"}),
                "VOCABULARY_MISMATCH");
  // The service goes on without it.
  const auto complete =
      service.Generate(Request("def main():", v1::METHOD_ASYNC, 8));
  EXPECT_TRUE(complete.ok()) << complete.status();
}

TEST_F(StartupTest, BadFlags) {
  ExpectFailure(
      Run({"nacre-target-worker", "--model", TargetModel(), "--coordinator",
           "127.0.0.1:1", "--backend", "cuda", "--device", "999"}),
      "CUDA");
  ExpectFailure(Run({"nacre-target-worker", "--model", TargetModel(),
                     "--coordinator", "127.0.0.1:1", "--cpus", "999"}),
                "999");
  ExpectFailure(Run({"nacre-target-worker", "--model", TargetModel(),
                     "--coordinator", "127.0.0.1:1", "--kv-type", "f8"}),
                "kv-type is \"f8\", expected \"auto\", \"f32\", \"bf16\" or "
                "\"int8\"");
  ExpectFailure(Run({"nacre-target-worker", "--coordinator", "127.0.0.1:1"}),
                "--model");
  ExpectFailure(Run({"nacre-target-worker", "--model", TargetModel(),
                     "--coordinator", "127.0.0.1:1", "--tls-cert", "a.crt"}),
                "--tls-key is missing");
  ExpectFailure(Run({"nacre-coordinator", "--tokenizer", TargetModel(),
                     "--listen", "127.0.0.1:0", "--tls-ca", "ca.crt"}),
                "--tls-cert is missing");
  ExpectFailure(Run({"nacre-coordinator", "--tokenizer", TargetModel(),
                     "--listen", "127.0.0.1:0", "--public-tls-cert",
                     "/no/such.crt", "--public-tls-key", "/no/such.key"}),
                "cannot read /no/such.crt");
}

}  // namespace
}  // namespace nacre::integration
