#include "gateway/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/x509.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gateway/http_server.h"
#include "tests/gateway/http_probe.h"
#include "tests/testing/certificates.h"

namespace nacre::gateway {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ::testing::HasSubstr;
using ::testing::Not;

// A GET over TLS: the name in the server's certificate and the answer; an
// empty answer where the two sides do not agree.
struct TlsAnswer {
  std::string name;
  std::string text;
};

TlsAnswer TlsGet(const std::string& address, const std::string& authority,
                 const rpc::TlsFiles* own = nullptr) {
  TlsAnswer answer;
  try {
    asio::ssl::context context(asio::ssl::context::tls_client);
    context.load_verify_file(authority);
    context.set_verify_mode(asio::ssl::verify_peer);
    if (own != nullptr) {
      context.use_certificate_chain_file(own->cert_file);
      context.use_private_key_file(own->key_file, asio::ssl::context::pem);
    }
    asio::io_context io;
    asio::ssl::stream<tcp::socket> stream(io, context);
    const size_t colon = address.rfind(':');
    asio::connect(stream.next_layer(),
                  tcp::resolver(io).resolve(address.substr(0, colon),
                                            address.substr(colon + 1)));
    stream.handshake(asio::ssl::stream_base::client);
    X509* const certificate = SSL_get_peer_certificate(stream.native_handle());
    char name[256] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate),
                              NID_commonName, name, sizeof(name));
    X509_free(certificate);
    answer.name = name;
    asio::write(stream,
                asio::buffer(std::string("GET /x HTTP/1.1\r\nHost: h\r\n"
                                         "Connection: close\r\n\r\n")));
    boost::system::error_code error;
    asio::read(stream, asio::dynamic_buffer(answer.text), error);
  } catch (const boost::system::system_error&) {
    answer.text.clear();
  }
  return answer;
}

class TransportTest : public ::testing::Test {
 protected:
  TransportTest() {
    std::string pattern = absl::StrCat(::testing::TempDir(), "/tlsXXXXXX");
    folder_ = mkdtemp(pattern.data());
    files_ = authority_.Issue(folder_, "server", {.name = "first"});
  }
  absl::Status StartServer(const rpc::TlsFiles& files) {
    auto server = HttpServer::Start(
        {.listen = "127.0.0.1:0",
         .tls = files,
         .tls_reload_period = absl::Milliseconds(10)},
        &loop_,
        [](HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
          reply->Send(200, {}, request.path + std::string(100000, 'x'));
        });
    if (server.ok()) server_ = *std::move(server);
    return server.status();
  }

  const nacre::testing::Authority authority_{"authority"};
  std::string folder_;
  rpc::TlsFiles files_;
  EventLoop loop_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(TransportTest, AnswersOverTlsAndTakesNewCertificates) {
  rpc::TlsFiles open = files_;
  open.ca_file.clear();
  ASSERT_TRUE(StartServer(open).ok());
  const TlsAnswer first = TlsGet(server_->address(), files_.ca_file);
  EXPECT_EQ(first.name, "first");
  EXPECT_EQ(BodyOf(first.text), "/x" + std::string(100000, 'x'));
  // No TLS: the server hangs up.
  EXPECT_THAT(Get(server_->address(), "/x"), Not(HasSubstr("200 OK")));

  // A bad certificate is not taken; a good one is, and old sessions go on.
  nacre::testing::WriteFileAtomically(files_.cert_file, "nothing");
  EXPECT_EQ(TlsGet(server_->address(), files_.ca_file).name, "first");
  authority_.Issue(folder_, "server", {.name = "second"});
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  std::string name;
  while (name != "second" && absl::Now() < deadline) {
    name = TlsGet(server_->address(), files_.ca_file).name;
  }
  EXPECT_EQ(name, "second");
}

TEST_F(TransportTest, WithAnAuthorityClientsMustShowACertificate) {
  ASSERT_TRUE(StartServer(files_).ok());
  EXPECT_EQ(TlsGet(server_->address(), files_.ca_file).text, "");
  const rpc::TlsFiles own = authority_.Issue(folder_, "client");
  EXPECT_EQ(StatusOf(TlsGet(server_->address(), files_.ca_file, &own).text),
            200);
  const nacre::testing::Authority other("other");
  const rpc::TlsFiles foreign = other.Issue(folder_, "foreign");
  EXPECT_EQ(TlsGet(server_->address(), files_.ca_file, &foreign).text, "");
}

TEST_F(TransportTest, NewAuthoritiesOfClientsCountFromThenOn) {
  const nacre::testing::Authority other("other");
  const rpc::TlsFiles old_client = authority_.Issue(folder_, "client");
  const rpc::TlsFiles client = other.Issue(folder_, "foreign");
  rpc::TlsFiles files = files_;
  files.ca_file = folder_ + "/clients.crt";
  std::filesystem::copy_file(files_.ca_file, files.ca_file);
  ASSERT_TRUE(StartServer(files).ok());
  EXPECT_EQ(TlsGet(server_->address(), files_.ca_file, &client).text, "");
  // The certificate of the server itself stays.
  std::filesystem::rename(client.ca_file, files.ca_file);
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  std::string text;
  while (text.empty() && absl::Now() < deadline) {
    text = TlsGet(server_->address(), files_.ca_file, &client).text;
  }
  EXPECT_EQ(StatusOf(text), 200);
  EXPECT_EQ(TlsGet(server_->address(), files_.ca_file, &old_client).text, "");
}

TEST_F(TransportTest, FilesThatDoNotFitAreRefusedAtTheStart) {
  rpc::TlsFiles missing = files_;
  missing.cert_file = folder_ + "/none";
  EXPECT_EQ(StartServer(missing).code(), absl::StatusCode::kNotFound);
  rpc::TlsFiles mixed = files_;
  mixed.key_file = authority_.Issue(folder_, "another").key_file;
  EXPECT_EQ(StartServer(mixed).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace nacre::gateway
