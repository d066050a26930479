#include "common/rpc/security.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/rpc/callback_threads.h"
#include "common/rpc/pem_files.h"
#include "common/status_macros.h"

namespace nacre::rpc {
namespace {

using grpc::experimental::FileWatcherCertificateProvider;
using grpc::experimental::TlsChannelCredentialsOptions;
using grpc::experimental::TlsServerCredentialsOptions;

absl::Status Missing(const std::string& flag, const std::string& needed_by) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is missing: ", needed_by, " needs it"));
}

absl::Status CheckCertificate(const TlsFiles& files,
                              const std::string& prefix) {
  NACRE_RETURN_IF_ERROR(CheckCertificateFlags(files, prefix));
  NACRE_RETURN_IF_ERROR(
      CheckCertificateAndKey(files.cert_file, files.key_file));
  const std::string problem = PermissionProblem(files.key_file);
  if (!problem.empty()) spdlog::warn("the private key {}", problem);
  return absl::OkStatus();
}

std::shared_ptr<FileWatcherCertificateProvider> Watch(const TlsFiles& files,
                                                      absl::Duration period) {
  KeepCallbackThreads();  // the watcher's thread needs a running gRPC
  return std::make_shared<FileWatcherCertificateProvider>(
      files.key_file, files.cert_file, files.ca_file,
      static_cast<unsigned>(
          std::max<int64_t>(1, absl::ToInt64Seconds(period))));
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentials(
    std::shared_ptr<FileWatcherCertificateProvider> provider,
    bool require_client_certificate) {
  TlsServerCredentialsOptions options(std::move(provider));
  options.watch_identity_key_cert_pairs();
  if (require_client_certificate) {
    options.watch_root_certs();
    options.set_cert_request_type(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials(
    std::shared_ptr<FileWatcherCertificateProvider> provider,
    const TlsFiles& files) {
  TlsChannelCredentialsOptions options;
  if (provider != nullptr) {
    options.set_certificate_provider(std::move(provider));
    if (!files.ca_file.empty()) options.watch_root_certs();
    if (!files.cert_file.empty()) options.watch_identity_key_cert_pairs();
  }
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace

void PeerTlsFlags::Register(FlagSet* flags) {
  flags->Add("tls-cert", "FILE", &files.cert_file,
             "PEM file: certificate of this process; TLS on all ports");
  flags->Add("tls-key", "FILE", &files.key_file,
             "PEM file: private key of --tls-cert");
  flags->Add("tls-ca", "FILE", &files.ca_file,
             "PEM file: authority of the certificates of our other processes "
             "and of operators");
  flags->Add("tls-client-auth", "require|none", &client_auth,
             "must other processes of ours and operators that call show a "
             "certificate? (default require)");
  flags->Add("tls-server-name", "NAME", &server_name,
             "name in the certificates of processes that this one calls "
             "(default: host of the address)");
}

absl::StatusOr<PeerSecurity> LoadPeerSecurity(const PeerTlsFlags& flags) {
  if (!flags.client_auth.empty() && flags.client_auth != "require" &&
      flags.client_auth != "none") {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-client-auth \"", flags.client_auth,
                     "\" is not require or none"));
  }
  PeerSecurity security;
  if (flags.files.empty()) {
    if (!flags.client_auth.empty()) {
      return Missing("--tls-cert", "--tls-client-auth");
    }
    if (!flags.server_name.empty()) {
      return Missing("--tls-ca", "--tls-server-name");
    }
    return security;
  }
  NACRE_RETURN_IF_ERROR(CheckCertificate(flags.files, "--tls"));
  if (flags.files.ca_file.empty()) return Missing("--tls-ca", "--tls-cert");
  NACRE_RETURN_IF_ERROR(CheckAuthorities(flags.files.ca_file));
  const auto provider = Watch(flags.files, flags.reload_period);
  security.server = ServerCredentials(provider, flags.client_auth != "none");
  security.channel = {ChannelCredentials(provider, flags.files),
                      flags.server_name};
  return security;
}

absl::Status CheckCertificateFlags(const TlsFiles& files,
                                   const std::string& prefix) {
  const std::string cert = prefix + "-cert";
  const std::string key = prefix + "-key";
  if (files.cert_file.empty()) {
    return Missing(cert, files.key_file.empty() ? prefix + "-ca" : key);
  }
  if (files.key_file.empty()) return Missing(key, cert);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> LoadServerTls(
    const TlsFiles& files, const std::string& prefix,
    absl::Duration reload_period) {
  NACRE_RETURN_IF_ERROR(CheckCertificate(files, prefix));
  if (!files.ca_file.empty()) {
    NACRE_RETURN_IF_ERROR(CheckAuthorities(files.ca_file));
  }
  return ServerCredentials(Watch(files, reload_period), !files.ca_file.empty());
}

absl::StatusOr<ChannelSecurity> LoadClientTls(const ClientTlsFlags& flags) {
  if (!flags.wanted()) return ChannelSecurity();
  if (!flags.files.ca_file.empty()) {
    NACRE_RETURN_IF_ERROR(CheckAuthorities(flags.files.ca_file));
  }
  const bool has_certificate =
      !flags.files.cert_file.empty() || !flags.files.key_file.empty();
  if (has_certificate) {
    NACRE_RETURN_IF_ERROR(CheckCertificate(flags.files, "--tls"));
  }
  // Without any file gRPC takes the system's authorities.
  return ChannelSecurity{
      ChannelCredentials(
          flags.files.empty() ? nullptr : Watch(flags.files, kTlsReloadPeriod),
          flags.files),
      flags.server_name};
}

}  // namespace nacre::rpc
