#include "model/pickle/zip_entries.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;

std::string LittleEndian(uint64_t value, int bytes) {
  return std::string(reinterpret_cast<const char*>(&value),
                     static_cast<size_t>(bytes));
}

// An archive of one file "n" with `data`, and what may be wrong with it.
struct Archive {
  std::string data = "bytes";
  uint16_t flags = 0;
  uint16_t method = 0;
  bool is_64 = false;
  uint64_t size = 5;
  uint64_t header = 0;
  int copies = 1;  // in the directory
  std::string comment;

  std::string Bytes() const {
    std::string bytes = LittleEndian(0x04034b50, 4) + std::string(22, '\0') +
                        LittleEndian(1, 2) + LittleEndian(3, 2) + "n" + "pad" +
                        data;
    const uint64_t begin = bytes.size();
    for (int i = 0; i < copies; ++i) bytes += Entry();
    const uint64_t end = bytes.size();
    const std::string count = LittleEndian(static_cast<uint64_t>(copies), 8);
    if (is_64) {
      bytes += LittleEndian(0x06064b50, 4) + std::string(20, '\0') + count +
               count + LittleEndian(end - begin, 8) + LittleEndian(begin, 8);
      bytes += LittleEndian(0x07064b50, 4) + std::string(4, '\0') +
               LittleEndian(end, 8) + LittleEndian(1, 4);
    }
    return bytes + LittleEndian(0x06054b50, 4) + std::string(4, '\0') +
           (is_64 ? std::string(4, '\xFF')
                  : count.substr(0, 2) + count.substr(0, 2)) +
           LittleEndian(end - begin, 4) +
           LittleEndian(is_64 ? 0xFFFFFFFF : begin, 4) +
           LittleEndian(comment.size(), 2) + comment;
  }

 private:
  std::string Entry() const {
    std::string extra = LittleEndian(0x4242, 2) + LittleEndian(1, 2) + "x";
    if (is_64) {
      extra += LittleEndian(1, 2) + LittleEndian(24, 2) +
               LittleEndian(size, 8) + LittleEndian(size, 8) +
               LittleEndian(header, 8);
    }
    const auto narrow = [this](uint64_t value) {
      return LittleEndian(is_64 ? 0xFFFFFFFF : value, 4);
    };
    return LittleEndian(0x02014b50, 4) + std::string(4, '\0') +
           LittleEndian(flags, 2) + LittleEndian(method, 2) +
           std::string(8, '\0') + narrow(size) + narrow(size) +
           LittleEndian(1, 2) + LittleEndian(extra.size(), 2) +
           std::string(10, '\0') + narrow(header) + "n" + extra;
  }
};

std::string ErrorOf(const std::string& archive) {
  return std::string(ParseZip(archive).status().message());
}

TEST(ZipEntriesTest, FindsFilesOfBothKinds) {
  for (const bool is_64 : {false, true}) {
    Archive archive;
    archive.is_64 = is_64;
    archive.comment = "PK\x05\x06 is no end";
    const std::string bytes = archive.Bytes();
    const auto entries = ParseZip(bytes);
    ASSERT_TRUE(entries.ok()) << entries.status();
    ASSERT_EQ(entries->size(), 1u);
    const ZipEntry& entry = entries->at("n");
    EXPECT_EQ(bytes.substr(entry.offset, entry.size_bytes), "bytes");
  }
}

TEST(ZipEntriesTest, RefusesWhatIsCompressedOrEncrypted) {
  Archive archive;
  archive.method = 8;
  EXPECT_EQ(ParseZip(archive.Bytes()).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_THAT(ErrorOf(archive.Bytes()), HasSubstr("file \"n\": it is comp"));
  archive.method = 0;
  archive.flags = 1;
  EXPECT_THAT(ErrorOf(archive.Bytes()), HasSubstr("encrypted"));
}

TEST(ZipEntriesTest, RefusesWhatDoesNotFit) {
  for (const bool is_64 : {false, true}) {
    Archive archive;
    archive.is_64 = is_64;
    archive.size = 500;
    EXPECT_EQ(ParseZip(archive.Bytes()).status().code(),
              absl::StatusCode::kDataLoss);
    archive.size = 5;
    archive.header = 1;
    EXPECT_THAT(ErrorOf(archive.Bytes()), HasSubstr("do not fit"));
    archive.header = 0;
    archive.copies = 2;
    EXPECT_THAT(ErrorOf(archive.Bytes()), HasSubstr("is in it twice"));
  }
  Archive archive;
  archive.is_64 = true;
  archive.size = ~uint64_t{0};
  EXPECT_FALSE(ParseZip(archive.Bytes()).ok());
  archive.size = 5;
  archive.header = ~uint64_t{0} - 3;
  EXPECT_THAT(ErrorOf(archive.Bytes()), HasSubstr("do not fit"));
  EXPECT_THAT(ErrorOf("PK"), HasSubstr("too short"));
  EXPECT_THAT(ErrorOf(std::string(100, 'x')), HasSubstr("no directory"));
}

TEST(ZipEntriesTest, EveryCutIsRefused) {
  for (const bool is_64 : {false, true}) {
    Archive archive;
    archive.is_64 = is_64;
    const std::string bytes = archive.Bytes();
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(ParseZip(bytes.substr(0, size)).ok()) << size;
    }
  }
}

}  // namespace
}  // namespace nacre::model
