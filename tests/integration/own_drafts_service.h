// Sessions of the real processes that draft from what their target computes,
// with a draft worker and without: at every temperature each of two choices is
// ar's, whether the drafts are right or not. Those that were trained are used,
// and are right at times.

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

class OwnDraftsTest : public ::testing::Test {
 protected:
  using Choices = std::vector<std::vector<int32_t>>;
  // Tokens of the target's own drafts.
  struct Own {
    uint64_t proposed = 0;
    uint64_t accepted = 0;
  };

  Choices Generate(Service& service, v1::GenerateRequest request,
                   v1::Method method, Own* own) {
    request.mutable_speculation()->set_method(method);
    const auto choices = service.client().GenerateChoices(
        request, kCallTimeout, [](uint32_t, const v1::Chunk&) {});
    EXPECT_TRUE(choices.ok()) << choices.status();
    Choices tokens;
    if (!choices.ok()) return tokens;
    for (const v1::Complete& complete : *choices) {
      tokens.emplace_back(complete.token_ids().begin(),
                          complete.token_ids().end());
      own->proposed += complete.speculation().suffix_proposed();
      own->accepted += complete.speculation().suffix_accepted();
    }
    return tokens;
  }

  // Of a draft that was trained: it is looked at, and right at times. That must
  // hold on a busy machine as well. The first look of a process is free, and
  // each request has a credit of half a step for its own. So steps are so long
  // that a look would have to take a hundred times what it takes to be too
  // dear. (Suffixes, which count alike, are off.)
  void ExpectTheyHelp(const char* flag, const std::string& path) {
    tools::Cluster::Options options = Service::Options(/*drafts=*/0);
    options.more_args.target = {absl::StrCat("--", flag), path,
                                "--suffix-drafter=off",
                                "--step-time=1:250,64:250"};
    Service service(std::move(options));
    Own own;
    // If a machine is so busy that a look was too dear, steps save for the
    // next.
    for (int turn = 0; turn < 10 && own.accepted == 0; ++turn) {
      ExpectTheyChangeNothing(service, &own);
    }
    EXPECT_GT(own.proposed, 0u) << "nothing looked at it";
    EXPECT_GT(own.accepted, 0u) << "of " << own.proposed;
    RecordProperty("accepted", std::to_string(own.accepted));
    RecordProperty("proposed", std::to_string(own.proposed));
    EXPECT_TRUE(service.KvReturnsToEmpty());
  }

 private:
  void ExpectTheyChangeNothing(Service& service, Own* own) {
    for (const float temperature : {0.0f, 0.8f}) {
      SCOPED_TRACE(temperature);
      v1::GenerateRequest request = Request(
          "Question: A baker makes 24 rolls an hour. How many rolls "
          "does he make in 3 hours?\nAnswer:",
          v1::METHOD_AR, /*max_tokens=*/16);
      request.set_n(2);
      request.mutable_sampling()->set_temperature(temperature);
      request.mutable_sampling()->set_seed(7);
      request.mutable_stop()->set_ignore_eos(true);
      Own none;
      const Choices ar = Generate(service, request, v1::METHOD_AR, &none);
      EXPECT_EQ(none.proposed, 0u);
      EXPECT_EQ(Generate(service, request, v1::METHOD_ASYNC, own), ar);
    }
  }
};

// The parameter: how many draft workers there are.
class OwnDraftsServiceTest : public OwnDraftsTest,
                             public ::testing::WithParamInterface<int> {
 protected:
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
    Own of_these;
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
        Own none;
        const Choices ar = Generate(service, request, v1::METHOD_AR, &none);
        EXPECT_EQ(none.proposed, 0u);
        for (const std::string& tree : trees) {
          request.mutable_speculation()->set_tree(tree);
          EXPECT_EQ(Generate(service, request, v1::METHOD_ASYNC, &of_these),
                    ar);
        }
        if (has_choice || temperature > 0) continue;
        request.mutable_speculation()->set_suffixes(false);
        EXPECT_EQ(Generate(service, request, v1::METHOD_ASYNC, &none), ar);
        EXPECT_EQ(none.proposed, 0u)
            << "a request may want nothing of the target's own";
      }
    }
    // With a draft worker beside them, whether one has no token for a step and
    // asks its own is a matter of time. Without one each session may look.
    if (GetParam() == 0) {
      EXPECT_GT(of_these.proposed, 0u);
    }
    RecordProperty("proposed", std::to_string(of_these.proposed));
    RecordProperty("accepted", std::to_string(of_these.accepted));
    EXPECT_TRUE(service.KvReturnsToEmpty());
  }
};

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_OWN_DRAFTS_SERVICE_H_
