// TLS between Nacre processes and with clients: which side proves its identity,
// with which files, and which ones they believe.
//
// The files are watched: replaced ones serve the handshakes that come after,
// existing connections go on. Thread-safe.

#ifndef COMMON_RPC_SECURITY_H_
#define COMMON_RPC_SECURITY_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/flag_set.h"

namespace nacre::rpc {

// Paths of PEM files.
struct TlsFiles {
  std::string cert_file;  // the own certificate, then its chain
  std::string key_file;   // its private key, not encrypted
  std::string ca_file;    // authorities that sign peers' certificates

  bool empty() const {
    return cert_file.empty() && key_file.empty() && ca_file.empty();
  }
};

// How a channel is secured. The default is plaintext.
struct ChannelSecurity {
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // The name that the server's certificate must hold; empty: the address's.
  std::string server_name;
};

// How often the files are looked at (whole seconds, at least one).
inline constexpr absl::Duration kTlsReloadPeriod = absl::Seconds(5);

// What the flags --tls-cert, --tls-key, --tls-ca, --tls-client-auth and
// --tls-server-name of a process say about its peers, other Nacre processes:
// it serves them and dials them.
struct PeerTlsFlags {
  TlsFiles files;           // all three, or none: plaintext
  std::string client_auth;  // require (the default) or none
  std::string server_name;
  absl::Duration reload_period = kTlsReloadPeriod;

  // --tls-cert, --tls-key, --tls-ca, --tls-client-auth, --tls-server-name.
  void Register(FlagSet* flags);
};

struct PeerSecurity {
  std::shared_ptr<grpc::ServerCredentials> server;  // null: plaintext
  ChannelSecurity channel;
};

// Errors: INVALID_ARGUMENT (an incomplete set, naming the missing flag; a bad
// --tls-client-auth), and those of pem_files.h.
absl::StatusOr<PeerSecurity> LoadPeerSecurity(const PeerTlsFlags& flags);

// INVALID_ARGUMENT: a certificate without its key, a key or authorities without
// a certificate. `prefix` begins the flags' names, as in "--public-tls".
absl::Status CheckCertificateFlags(const TlsFiles& files,
                                   const std::string& prefix);

// The credentials of a server for the public: clients need a certificate iff
// `files` has a ca_file. Errors as of the two above.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> LoadServerTls(
    const TlsFiles& files, const std::string& prefix,
    absl::Duration reload_period = kTlsReloadPeriod);

// The flags of a client: --tls (the system's authorities), --tls-ca,
// --tls-cert with --tls-key where the server asks for one, --tls-server-name.
struct ClientTlsFlags {
  bool tls = false;
  TlsFiles files;
  std::string server_name;

  bool wanted() const { return tls || !files.empty() || !server_name.empty(); }
};

// Plaintext if no flag is given. Errors as above.
absl::StatusOr<ChannelSecurity> LoadClientTls(const ClientTlsFlags& flags);

}  // namespace nacre::rpc

#endif  // COMMON_RPC_SECURITY_H_
