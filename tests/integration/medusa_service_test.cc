// Medusa heads through the real processes, with a draft worker and without: at
// every temperature each of two choices is ar's, whether the heads are right or
// not.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"
#include "model/config.h"
#include "model/safetensors_writer.h"
#include "tests/integration/service_fixture.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::integration {
namespace {

constexpr int kMaxTokens = 24;
constexpr int kHeads = 3;

// Heads of the bundled target whose blocks add nothing: each says again what
// the target said of the position before.
std::string WriteHeads(const std::string& folder) {
  const auto config = model::ReadConfig(TargetModel());
  EXPECT_TRUE(config.ok()) << config.status();
  const int64_t size = config->hidden_size;
  std::vector<model::TensorSpec> tensors;
  for (int k = 0; k < kHeads; ++k) {
    tensors.push_back({absl::StrCat(k, ".0.linear.weight"),
                       kernels::DType::kBF16,
                       {size, size}});
  }
  const std::string path = folder + "/medusa_lm_head.safetensors";
  auto writer = model::SafetensorsWriter::Create(path, tensors);
  EXPECT_TRUE(writer.ok()) << writer.status();
  const std::vector<uint16_t> zeros(static_cast<size_t>(kHeads * size * size));
  EXPECT_TRUE(
      (*writer)->Append(zeros.data(), zeros.size() * sizeof(uint16_t)).ok());
  EXPECT_TRUE((*writer)->Finish().ok());
  return path;
}

class MedusaServiceTest : public ::testing::TestWithParam<int> {
 protected:
  using Choices = std::vector<std::vector<int32_t>>;

  Choices Generate(Service& service, v1::GenerateRequest request,
                   v1::Method method, uint64_t* accepted) {
    request.mutable_speculation()->set_method(method);
    const auto choices = service.client().GenerateChoices(
        request, kCallTimeout, [](uint32_t, const v1::Chunk&) {});
    EXPECT_TRUE(choices.ok()) << choices.status();
    Choices tokens;
    if (!choices.ok()) return tokens;
    for (const v1::Complete& complete : *choices) {
      tokens.emplace_back(complete.token_ids().begin(),
                          complete.token_ids().end());
      *accepted += complete.speculation().suffix_accepted();
    }
    return tokens;
  }
};

TEST_P(MedusaServiceTest, ChangeNoToken) {
  const tools::TemporaryFolder folder;
  tools::Cluster::Options options = Service::Options(GetParam());
  options.workers.suffix_drafter = "off";
  options.workers.medusa = WriteHeads(folder.path());
  // Rows cost nothing, on a busy machine hardly any.
  options.workers.target_step_time = "1:60,64:60";
  Service service(std::move(options));
  uint64_t of_heads = 0;
  for (const float temperature : {0.0f, 0.8f, 1.0f}) {
    // Mostly wrong heads; and a request that leaves the target so little choice
    // that saying the same again is often right.
    for (const bool has_choice : {true, false}) {
      SCOPED_TRACE(absl::StrCat(temperature, " ", has_choice));
      v1::GenerateRequest request =
          Request("Question: A baker makes", v1::METHOD_AR, kMaxTokens);
      request.set_n(2);
      request.mutable_sampling()->set_temperature(temperature);
      request.mutable_sampling()->set_seed(7);
      request.mutable_stop()->set_ignore_eos(true);
      if (!has_choice) {
        for (const uint32_t id : {300u, 301u}) {
          (*request.mutable_sampling()->mutable_logit_bias())[id] = 100;
        }
      }
      uint64_t none = 0;
      const Choices ar = Generate(service, request, v1::METHOD_AR, &none);
      EXPECT_EQ(none, 0u);
      uint64_t accepted = 0;
      EXPECT_EQ(Generate(service, request, v1::METHOD_ASYNC, &accepted), ar);
      of_heads += accepted;
      if (has_choice || temperature > 0) continue;
      request.mutable_speculation()->set_suffixes(false);
      EXPECT_EQ(Generate(service, request, v1::METHOD_ASYNC, &none), ar);
      EXPECT_EQ(none, 0u) << "a request may want nothing of the target's own";
    }
  }
  // On a busy machine a look at the heads may cost more than a session may
  // spend: what they give is a matter of
  // tests/target_worker/engine_heads_test.cc.
  RecordProperty("accepted_of_heads", std::to_string(of_heads));
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

INSTANTIATE_TEST_SUITE_P(Drafts, MedusaServiceTest, ::testing::Values(0, 1));

}  // namespace
}  // namespace nacre::integration
