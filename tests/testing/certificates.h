// Certificates for tests, made on the spot: an authority and what it signs.

#ifndef TESTS_TESTING_CERTIFICATES_H_
#define TESTS_TESTING_CERTIFICATES_H_

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

#include "common/rpc/security.h"

namespace nacre::testing {

// Not thread-safe.
class Authority {
 public:
  explicit Authority(const std::string& name);
  ~Authority();

  struct Subject {
    std::string name = "nacre-test";
    // As in openssl's configuration.
    std::string alternative_names = "DNS:localhost,IP:127.0.0.1";
    int valid_from_day = -1;  // relative to now
    int valid_until_day = 1;
  };

  // Writes FOLDER/BASE.crt, .key (mode 0600) and .ca.crt (this authority); each
  // replaces an old one as a whole. Aborts where it cannot.
  rpc::TlsFiles Issue(const std::string& folder, const std::string& base,
                      const Subject& subject) const;
  rpc::TlsFiles Issue(const std::string& folder,
                      const std::string& base) const {
    return Issue(folder, base, Subject());
  }

 private:
  EVP_PKEY* const key_;
  X509* const certificate_;
};

// Replaces the file as a whole.
void WriteFileAtomically(const std::string& path, const std::string& content);

}  // namespace nacre::testing

#endif  // TESTS_TESTING_CERTIFICATES_H_
