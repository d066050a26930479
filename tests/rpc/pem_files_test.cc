#include "common/rpc/pem_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/testing/certificates.h"

namespace nacre::rpc {
namespace {

using ::testing::AllOf;
using testing::Authority;
using ::testing::HasSubstr;
using testing::WriteFileAtomically;

class PemFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::string folder_ =
      ::testing::TempDir() + "/nacre_pem_" + std::to_string(getpid());
  const Authority authority_{"authority"};
};

TEST_F(PemFilesTest, AGoodSetPasses) {
  const TlsFiles files = authority_.Issue(folder_, "good");
  EXPECT_TRUE(CheckCertificateAndKey(files.cert_file, files.key_file).ok());
  EXPECT_TRUE(CheckAuthorities(files.ca_file).ok());
}

TEST_F(PemFilesTest, AMissingFileIsNamed) {
  const TlsFiles files = authority_.Issue(folder_, "good");
  const absl::Status status =
      CheckCertificateAndKey(folder_ + "/none.crt", files.key_file);
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(folder_ + "/none.crt"), HasSubstr("No such")));
  EXPECT_TRUE(absl::IsNotFound(
      CheckCertificateAndKey(files.cert_file, folder_ + "/none.key")));
  EXPECT_TRUE(absl::IsNotFound(CheckAuthorities(folder_ + "/none.ca")));
}

TEST_F(PemFilesTest, WhatIsNoPemIsNamed) {
  const TlsFiles files = authority_.Issue(folder_, "good");
  const std::string noise = folder_ + "/noise";
  WriteFileAtomically(noise, "no PEM at all\n");
  for (const absl::Status& status :
       {CheckCertificateAndKey(noise, files.key_file),
        CheckCertificateAndKey(files.cert_file, noise), CheckAuthorities(noise),
        // A key is no certificate, nor the other way round.
        CheckCertificateAndKey(files.key_file, files.key_file),
        CheckCertificateAndKey(files.cert_file, files.cert_file)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(folder_));
  }
}

TEST_F(PemFilesTest, AnotherCertificatesKeyIsRefused) {
  const TlsFiles files = authority_.Issue(folder_, "one");
  const TlsFiles other = authority_.Issue(folder_, "two");
  const absl::Status status =
      CheckCertificateAndKey(files.cert_file, other.key_file);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(),
            other.key_file + " is not the private key of " + files.cert_file);
}

TEST_F(PemFilesTest, OnlyACertificateOfTodayIsGood) {
  const TlsFiles old = authority_.Issue(
      folder_, "old", {.valid_from_day = -10, .valid_until_day = -2});
  EXPECT_TRUE(absl::IsFailedPrecondition(
      CheckCertificateAndKey(old.cert_file, old.key_file)));
  const TlsFiles early = authority_.Issue(
      folder_, "early", {.valid_from_day = 2, .valid_until_day = 10});
  EXPECT_TRUE(absl::IsFailedPrecondition(
      CheckCertificateAndKey(early.cert_file, early.key_file)));
}

TEST_F(PemFilesTest, SecretsThatOthersMayReadOrWriteAreAProblem) {
  const std::string path = folder_ + "/secret";
  WriteFileAtomically(path, "x");
  EXPECT_EQ(PermissionProblem(path), "");
  chmod(path.c_str(), 0640);  // a group may read, as mounted secrets have it
  EXPECT_EQ(PermissionProblem(path), "");
  chmod(path.c_str(), 0644);
  EXPECT_EQ(PermissionProblem(path),
            path + " has mode 0644: everybody may read it");
  chmod(path.c_str(), 0620);
  EXPECT_THAT(PermissionProblem(path), HasSubstr("may write it"));
  EXPECT_EQ(PermissionProblem(folder_ + "/none"), "");
}

}  // namespace
}  // namespace nacre::rpc
