// Sessions of the real processes that draft from what their target computes,
// with a draft worker and without: at every temperature each of two choices is
// ar's, whether the drafts are right or not.

#ifndef TESTS_INTEGRATION_OWN_DRAFTS_SERVICE_H_
#define TESTS_INTEGRATION_OWN_DRAFTS_SERVICE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/service_fixture.h"

namespace nacre::integration {

inline constexpr int kOwnDraftsTokens = 24;

// The parameter: how many draft workers there are.
class OwnDraftsServiceTest : public ::testing::TestWithParam<int> {
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

  // `options`: of a service whose targets draft so. `trees`: shapes that are
  // asked for in turn; empty: the default one.
  void ExpectNoTokenChanges(tools::Cluster::Options options,
                            const std::vector<std::string>& trees = {""}) {
    // Rows cost nothing, on a busy machine hardly any.
    for (const char* flag :
         {"--suffix-drafter=off", "--step-time=1:60,64:60"}) {
      options.more_args.target.emplace_back(flag);
    }
    Service service(std::move(options));
    uint64_t of_these = 0;
    for (const float temperature : {0.0f, 0.8f, 1.0f}) {
      // Mostly wrong drafts; and a request that leaves the target so little
      // choice that saying the same again is often right.
      for (const bool has_choice : {true, false}) {
        SCOPED_TRACE(absl::StrCat(temperature, " ", has_choice));
        v1::GenerateRequest request =
            Request("Question: A baker makes", v1::METHOD_AR, kOwnDraftsTokens);
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
        for (const std::string& tree : trees) {
          request.mutable_speculation()->set_tree(tree);
          EXPECT_EQ(Generate(service, request, v1::METHOD_ASYNC, &accepted),
                    ar);
        }
        of_these += accepted;
        if (has_choice || temperature > 0) continue;
        request.mutable_speculation()->set_suffixes(false);
        EXPECT_EQ(Generate(service, request, v1::METHOD_ASYNC, &none), ar);
        EXPECT_EQ(none, 0u) << "a request may want nothing of the target's own";
      }
    }
    // On a busy machine a look may cost more than a session may
    // spend: what looks give is a matter of tests/target_worker.
    RecordProperty("accepted_of_these", std::to_string(of_these));
    EXPECT_TRUE(service.KvReturnsToEmpty());
  }
};

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_OWN_DRAFTS_SERVICE_H_
