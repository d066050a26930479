#include "common/rpc/pem_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace nacre::rpc {
namespace {

template <auto kFree>
struct Deleter {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;

absl::StatusOr<Bio> Open(const std::string& path) {
  errno = 0;
  Bio bio(BIO_new_file(path.c_str(), "r"));
  const int error = errno;
  ERR_clear_error();
  if (bio != nullptr) return bio;
  const std::string message =
      absl::StrCat("cannot read ", path, ": ", std::strerror(error));
  return error == EACCES ? absl::PermissionDeniedError(message)
                         : absl::NotFoundError(message);
}

// An encrypted key is an error: a service has no way to ask for a passphrase.
int NoPassphrase(char*, int, int, void*) { return -1; }

absl::StatusOr<Certificate> ReadCertificate(const std::string& path) {
  NACRE_ASSIGN_OR_RETURN(const Bio bio, Open(path));
  Certificate certificate(
      PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " holds no certificate in PEM form"));
  }
  return certificate;
}

absl::StatusOr<Key> ReadKey(const std::string& path) {
  NACRE_ASSIGN_OR_RETURN(const Bio bio, Open(path));
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " holds no unencrypted private key in PEM form"));
  }
  return key;
}

std::string ToText(const ASN1_TIME* time) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || ASN1_TIME_print(bio.get(), time) != 1) return "?";
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, size);
}

}  // namespace

absl::Status CheckCertificateAndKey(const std::string& cert_file,
                                    const std::string& key_file) {
  NACRE_ASSIGN_OR_RETURN(const Certificate certificate,
                         ReadCertificate(cert_file));
  NACRE_ASSIGN_OR_RETURN(const Key key, ReadKey(key_file));
  const bool match = X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!match) {
    return absl::InvalidArgumentError(
        absl::StrCat(key_file, " is not the private key of ", cert_file));
  }
  // Null compares with the present time.
  const ASN1_TIME* from = X509_get0_notBefore(certificate.get());
  const ASN1_TIME* until = X509_get0_notAfter(certificate.get());
  if (X509_cmp_time(from, nullptr) > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(cert_file, " is not valid before ", ToText(from)));
  }
  if (X509_cmp_time(until, nullptr) < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(cert_file, " expired on ", ToText(until)));
  }
  return absl::OkStatus();
}

absl::Status CheckAuthorities(const std::string& ca_file) {
  return ReadCertificate(ca_file).status();
}

std::string PermissionProblem(const std::string& secret_file) {
  struct stat info;
  if (stat(secret_file.c_str(), &info) != 0) return "";
  const char* problem = nullptr;
  if ((info.st_mode & S_IROTH) != 0) problem = "everybody may read it";
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    problem = "others than its owner may write it";
  }
  if (problem == nullptr) return "";
  return absl::StrFormat("%s has mode %04o: %s", secret_file,
                         info.st_mode & 07777, problem);
}

}  // namespace nacre::rpc
