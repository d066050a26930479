#include "telemetry/collector_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "tests/testing/certificates.h"

namespace nacre::telemetry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using Variables = std::map<std::string, std::string>;

constexpr char kEndpoint[] = "OTEL_EXPORTER_OTLP_ENDPOINT";
constexpr char kHeaders[] = "OTEL_EXPORTER_OTLP_HEADERS";

absl::StatusOr<Collector> Resolve(const Variables& variables,
                                  const CollectorFlags& flags = {}) {
  const Environment environment = [&](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  };
  return ResolveCollector(flags, OtelVariables(environment));
}

Collector Resolved(const Variables& variables,
                   const CollectorFlags& flags = {}) {
  const auto collector = Resolve(variables, flags);
  EXPECT_TRUE(collector.ok()) << collector.status();
  return collector.value_or(Collector());
}

bool UsesTls(const Variables& variables, const CollectorFlags& flags = {}) {
  return Resolved(variables, flags).security.credentials != nullptr;
}

std::string Error(const Variables& variables,
                  const CollectorFlags& flags = {}) {
  const absl::Status status = Resolve(variables, flags).status();
  EXPECT_FALSE(status.ok());
  return std::string(status.message());
}

CollectorFlags To(const std::string& endpoint) {
  CollectorFlags flags;
  flags.endpoint = endpoint;
  return flags;
}

class CollectorSettingsTest : public ::testing::Test {
 protected:
  CollectorSettingsTest() {
    std::filesystem::create_directories(folder_);
    files_ = authority_.Issue(folder_, "client");
  }
  ~CollectorSettingsTest() override { std::filesystem::remove_all(folder_); }

  const std::string folder_ = ::testing::TempDir() +
                              "/nacre_collector_settings_" +
                              std::to_string(getpid());
  const nacre::testing::Authority authority_{"authority"};
  rpc::TlsFiles files_;
};

TEST_F(CollectorSettingsTest, TheSchemeSaysWhetherThereIsTls) {
  for (const auto& [url, tls] :
       {std::pair{"http://c:1", false}, std::pair{"HTTPS://c:1/", true}}) {
    EXPECT_EQ(Resolved({{kEndpoint, url}}).endpoint, "c:1");
    EXPECT_EQ(UsesTls({{kEndpoint, url}}), tls) << url;
    EXPECT_EQ(UsesTls({}, To(url)), tls) << url;
  }
}

TEST_F(CollectorSettingsTest, WithoutASchemeTheVariableMeansTls) {
  EXPECT_TRUE(UsesTls({{kEndpoint, "c:1"}}));
  // The flag alone has always been plaintext.
  EXPECT_FALSE(UsesTls({}, To("c:1")));
  CollectorFlags flags = To("c:1");
  flags.tls.ca_file = files_.ca_file;
  EXPECT_TRUE(UsesTls({}, flags));
}

TEST_F(CollectorSettingsTest, FilesAreCheckedAndTheirFlagsNamed) {
  CollectorFlags flags = To("https://c:1");
  EXPECT_TRUE(UsesTls({}, flags));
  flags.tls.ca_file = "/no/such.crt";
  EXPECT_THAT(Error({}, flags),
              HasSubstr("--otlp-tls-ca: cannot read /no/such.crt"));
  flags.tls.ca_file = files_.key_file;
  EXPECT_THAT(Error({}, flags), HasSubstr("holds no certificate in PEM form"));
  flags.tls = {.key_file = files_.key_file};
  EXPECT_EQ(Error({}, flags),
            "--otlp-tls-cert is missing: --otlp-tls-key needs it");
  flags.tls = {.cert_file = files_.cert_file};
  EXPECT_EQ(Error({}, flags),
            "--otlp-tls-key is missing: --otlp-tls-cert needs it");
  flags.tls.key_file = authority_.Issue(folder_, "other").key_file;
  EXPECT_THAT(Error({}, flags), HasSubstr("is not the private key of"));
  flags.tls.key_file = files_.key_file;
  EXPECT_TRUE(UsesTls({}, flags));
  // Flags hold for a collector that a variable names, too.
  flags.endpoint = "";
  EXPECT_TRUE(UsesTls({{kEndpoint, "https://c:1"}}, flags));
  flags.endpoint = "http://c:1";
  EXPECT_EQ(Error({}, flags),
            "--otlp-tls-*: the collector c:1 is called in plaintext, without "
            "https://");
}

TEST_F(CollectorSettingsTest, HeadersAreMetadataInLowerCase) {
  EXPECT_THAT(
      Resolved(
          {{kEndpoint, "http://c:1"},
           {kHeaders,
            "Authorization=Basic%20a%2Cb== , x-tenant = blue,x-tenant=2,"}})
          .headers,
      ElementsAre(Pair("authorization", "Basic a,b=="),
                  Pair("x-tenant", "blue"), Pair("x-tenant", "2")));
  EXPECT_THAT(Resolved({{kEndpoint, "http://c:1"}}).headers, IsEmpty());

  CollectorFlags flags = To("c:1");
  flags.headers_file = folder_ + "/headers";
  std::ofstream(flags.headers_file) << "authorization=Bearer zyx\nother=1\n";
  EXPECT_THAT(
      Resolved({{kHeaders, "not=this"}}, flags).headers,
      ElementsAre(Pair("authorization", "Bearer zyx"), Pair("other", "1")));
  flags.headers_file = "/no/such/headers";
  EXPECT_EQ(Error({}, flags),
            "--otlp-headers-file: cannot read /no/such/headers");
}

TEST_F(CollectorSettingsTest, HeadersThatCannotBeSentAreNotRepeated) {
  for (const char* bad :
       {"zyxsecret", "=zyxsecret", "zyx key=zyxsecret", "a=zyxsecret%0a",
        "a=zyxsecret%4", "grpc-timeout=zyxsecret", "zyxsecret-bin=1",
        "content-type=zyxsecret", "\xc3\xa4=zyxsecret",
        "a=zyxsecret\xc3\xa4"}) {
    const std::string error = Error(
        {{kEndpoint, "http://c:1"}, {kHeaders, std::string("good=1,") + bad}});
    EXPECT_THAT(error, HasSubstr("OTEL_EXPORTER_OTLP_HEADERS: header 2 is not"))
        << bad;
    EXPECT_THAT(error, Not(HasSubstr("zyx")));
  }
}

TEST_F(CollectorSettingsTest, TimeoutsAreOfReasonableSize) {
  CollectorFlags flags = To("c:1");
  EXPECT_EQ(Resolved({}, flags).timeout, absl::Seconds(10));
  for (const absl::Duration timeout :
       {absl::Milliseconds(1), absl::Seconds(3), absl::Seconds(60)}) {
    flags.timeout = timeout;
    EXPECT_EQ(Resolved({}, flags).timeout, timeout);
  }
  for (const absl::Duration timeout :
       {absl::ZeroDuration(), absl::Seconds(-1), absl::Microseconds(999),
        absl::Milliseconds(60001), absl::InfiniteDuration()}) {
    flags.timeout = timeout;
    EXPECT_EQ(Error({}, flags), "--otlp-timeout \"" +
                                    absl::FormatDuration(timeout) +
                                    "\" is not in [1 ms, 60 s]");
  }
}

TEST_F(CollectorSettingsTest, CompressionIsGzipOrNone) {
  CollectorFlags flags = To("c:1");
  EXPECT_FALSE(Resolved({}, flags).gzip);
  flags.compression = "none";
  EXPECT_FALSE(Resolved({}, flags).gzip);
  flags.compression = "gzip";
  EXPECT_TRUE(Resolved({}, flags).gzip);
  flags.compression = "zstd";
  EXPECT_EQ(Error({}, flags),
            "--otlp-compression \"zstd\" is not gzip or none");
}

TEST_F(CollectorSettingsTest, WithoutAnEndpointNothingIsLookedAt) {
  CollectorFlags flags;
  flags.compression = "nonsense";
  EXPECT_EQ(Resolved({{kHeaders, "nonsense"}}, flags).endpoint, "");
}

}  // namespace
}  // namespace nacre::telemetry
