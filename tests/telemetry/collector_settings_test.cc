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
    // It wins over a variable that says otherwise.
    EXPECT_EQ(
        UsesTls({{kEndpoint, url},
                 {"OTEL_EXPORTER_OTLP_INSECURE", tls ? "true" : "false"}}),
        tls);
  }
  // What is for another signal's TLS is of no use for a plaintext one.
  EXPECT_FALSE(UsesTls({{kEndpoint, "http://c:1"},
                        {"OTEL_EXPORTER_OTLP_CERTIFICATE", files_.ca_file}}));
}

TEST_F(CollectorSettingsTest, WithoutASchemeInsecureDecides) {
  EXPECT_TRUE(UsesTls({{kEndpoint, "c:1"}}));
  EXPECT_FALSE(
      UsesTls({{kEndpoint, "c:1"}, {"OTEL_EXPORTER_OTLP_INSECURE", "True"}}));
  EXPECT_TRUE(UsesTls({{kEndpoint, "c:1"},
                       {"OTEL_EXPORTER_OTLP_INSECURE", "true"},
                       {"OTEL_EXPORTER_OTLP_TRACES_INSECURE", "false"}}));
  // The flag alone has always been plaintext.
  EXPECT_FALSE(UsesTls({}, To("c:1")));
  EXPECT_TRUE(UsesTls({{"OTEL_EXPORTER_OTLP_INSECURE", "false"}}, To("c:1")));
  EXPECT_TRUE(
      UsesTls({{"OTEL_EXPORTER_OTLP_CERTIFICATE", files_.ca_file}}, To("c:1")));
  CollectorFlags flags = To("c:1");
  flags.tls.ca_file = files_.ca_file;
  EXPECT_TRUE(UsesTls({}, flags));
  EXPECT_EQ(Error({{kEndpoint, "c:1"}, {"OTEL_EXPORTER_OTLP_INSECURE", "1"}}),
            "OTEL_EXPORTER_OTLP_INSECURE \"1\" is not true or false");
}

TEST_F(CollectorSettingsTest, FilesAreCheckedAndNamedAsTheyWereGiven) {
  const std::string https = "https://c:1";
  EXPECT_TRUE(UsesTls(
      {{kEndpoint, https},
       {"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", files_.ca_file},
       {"OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such.crt"},
       {"OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", files_.cert_file},
       {"OTEL_EXPORTER_OTLP_CLIENT_KEY", files_.key_file}}));
  EXPECT_THAT(Error({{kEndpoint, https},
                     {"OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such.crt"}}),
              HasSubstr("OTEL_EXPORTER_OTLP_CERTIFICATE: cannot read "
                        "/no/such.crt"));
  EXPECT_THAT(Error({{kEndpoint, https},
                     {"OTEL_EXPORTER_OTLP_CERTIFICATE", files_.key_file}}),
              HasSubstr("holds no certificate in PEM form"));
  EXPECT_EQ(Error({{kEndpoint, https},
                   {"OTEL_EXPORTER_OTLP_CLIENT_KEY", files_.key_file}}),
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE is missing: "
            "OTEL_EXPORTER_OTLP_CLIENT_KEY needs it");
  CollectorFlags flags = To(https);
  flags.tls.cert_file = files_.cert_file;
  EXPECT_EQ(Error({}, flags),
            "OTEL_EXPORTER_OTLP_CLIENT_KEY is missing: --otlp-tls-cert needs "
            "it");
  flags.tls.key_file = authority_.Issue(folder_, "other").key_file;
  EXPECT_THAT(Error({}, flags), HasSubstr("is not the private key of"));
  flags.tls.key_file = files_.key_file;
  EXPECT_TRUE(UsesTls({}, flags));
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
  EXPECT_THAT(Resolved({{kEndpoint, "http://c:1"},
                        {kHeaders, "all=1"},
                        {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "own=2"}})
                  .headers,
              ElementsAre(Pair("own", "2")));
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

TEST_F(CollectorSettingsTest, TimeoutsAreMillisecondsOfReasonableSize) {
  const auto timeout = [](const std::string& text) {
    return Resolved({{kEndpoint, "http://c:1"},
                     {"OTEL_EXPORTER_OTLP_TIMEOUT", text}})
        .timeout;
  };
  EXPECT_EQ(timeout(""), absl::Seconds(10));
  EXPECT_EQ(timeout("1500"), absl::Milliseconds(1500));
  EXPECT_EQ(timeout("60000"), absl::Seconds(60));
  CollectorFlags flags = To("c:1");
  flags.timeout = absl::Seconds(3);
  EXPECT_EQ(Resolved({{"OTEL_EXPORTER_OTLP_TIMEOUT", "1"}}, flags).timeout,
            absl::Seconds(3));
  EXPECT_EQ(Error({{kEndpoint, "http://c:1"},
                   {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "10s"}}),
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT \"10s\" is not a number of "
            "milliseconds");
  for (const char* text : {"0", "-1", "60001", "9223372036854775807"}) {
    EXPECT_THAT(Error({{kEndpoint, "http://c:1"},
                       {"OTEL_EXPORTER_OTLP_TIMEOUT", text}}),
                HasSubstr("is not in [1 ms, 60 s]"));
  }
  flags.timeout = absl::Minutes(2);
  EXPECT_EQ(Error({}, flags), "--otlp-timeout \"2m\" is not in [1 ms, 60 s]");
}

TEST_F(CollectorSettingsTest, CompressionIsGzipOrNone) {
  const auto gzip = [](const std::string& text) {
    return Resolved({{kEndpoint, "http://c:1"},
                     {"OTEL_EXPORTER_OTLP_COMPRESSION", text}})
        .gzip;
  };
  EXPECT_FALSE(gzip(""));
  EXPECT_FALSE(gzip("none"));
  EXPECT_TRUE(gzip("gzip"));
  CollectorFlags flags = To("c:1");
  flags.compression = "none";
  EXPECT_FALSE(
      Resolved({{"OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"}}, flags).gzip);
  flags.compression = "zstd";
  EXPECT_EQ(Error({}, flags),
            "--otlp-compression \"zstd\" is not gzip or none");
}

TEST_F(CollectorSettingsTest, WithoutAnEndpointNothingIsLookedAt) {
  EXPECT_EQ(Resolved({{kHeaders, "nonsense"},
                      {"OTEL_EXPORTER_OTLP_TIMEOUT", "nonsense"},
                      {"OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such"}})
                .endpoint,
            "");
}

}  // namespace
}  // namespace nacre::telemetry
