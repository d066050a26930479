#include "tests/testing/certificates.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>

#include "common/check.h"

namespace nacre::testing {
namespace {

EVP_PKEY* NewKey() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  NACRE_CHECK(key != nullptr, "cannot make a key");
  return key;
}

void AddExtension(X509* certificate, int id, const std::string& value) {
  X509_EXTENSION* extension =
      X509V3_EXT_conf_nid(nullptr, nullptr, id, value.c_str());
  NACRE_CHECK(extension != nullptr, value.c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

X509* NewCertificate(const std::string& name, int from_day, int until_day,
                     EVP_PKEY* key) {
  static long next_serial = 1;
  X509* certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), next_serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate), from_day * 86400L);
  X509_gmtime_adj(X509_getm_notAfter(certificate), until_day * 86400L);
  X509_NAME_add_entry_by_txt(
      X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
      reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_pubkey(certificate, key);
  return certificate;
}

template <typename Write>
std::string ToPem(const Write& write) {
  BIO* bio = BIO_new(BIO_s_mem());
  NACRE_CHECK(write(bio) == 1, "cannot write PEM");
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio, &text);
  std::string pem(text, size);
  BIO_free(bio);
  return pem;
}

std::string CertificatePem(X509* certificate) {
  return ToPem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

}  // namespace

void WriteFileAtomically(const std::string& path, const std::string& content) {
  const std::string temporary = path + ".new";
  std::ofstream(temporary, std::ios::trunc) << content;
  NACRE_CHECK(chmod(temporary.c_str(), 0600) == 0, temporary.c_str());
  NACRE_CHECK(std::rename(temporary.c_str(), path.c_str()) == 0, path.c_str());
}

Authority::Authority(const std::string& name)
    : key_(NewKey()), certificate_(NewCertificate(name, -1, 1, key_)) {
  X509_set_issuer_name(certificate_, X509_get_subject_name(certificate_));
  AddExtension(certificate_, NID_basic_constraints, "critical,CA:TRUE");
  NACRE_CHECK(X509_sign(certificate_, key_, EVP_sha256()) > 0, "cannot sign");
}

Authority::~Authority() {
  X509_free(certificate_);
  EVP_PKEY_free(key_);
}

rpc::TlsFiles Authority::Issue(const std::string& folder,
                               const std::string& base,
                               const Subject& subject) const {
  EVP_PKEY* key = NewKey();
  X509* certificate = NewCertificate(subject.name, subject.valid_from_day,
                                     subject.valid_until_day, key);
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate_));
  AddExtension(certificate, NID_subject_alt_name, subject.alternative_names);
  NACRE_CHECK(X509_sign(certificate, key_, EVP_sha256()) > 0, "cannot sign");
  rpc::TlsFiles files;
  files.cert_file = folder + "/" + base + ".crt";
  files.key_file = folder + "/" + base + ".key";
  files.ca_file = folder + "/" + base + ".ca.crt";
  WriteFileAtomically(files.cert_file, CertificatePem(certificate));
  WriteFileAtomically(files.key_file, ToPem([&](BIO* bio) {
                        return PEM_write_bio_PrivateKey(
                            bio, key, nullptr, nullptr, 0, nullptr, nullptr);
                      }));
  WriteFileAtomically(files.ca_file, CertificatePem(certificate_));
  X509_free(certificate);
  EVP_PKEY_free(key);
  return files;
}

}  // namespace nacre::testing
