// Copies of a draft's folder in which one tensor is NaN.

#ifndef TESTS_WORKER_DAMAGED_DRAFT_H_
#define TESTS_WORKER_DAMAGED_DRAFT_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "model/safetensors.h"

namespace nacre::worker {

// Writes NaN over the first row, or all of a vector, of a tensor of BF16.
inline void Damage(const std::string& file, const model::TensorEntry& entry) {
  ASSERT_EQ(entry.dtype, "BF16");
  const std::string nan = "\xc0\x7f";
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(entry.offset));
  for (int64_t i = 0; i < entry.shape.back(); ++i) stream << nan;
  ASSERT_TRUE(stream.flush().good());
}

// Calls `check` with a copy of the folder for each of its tensors whose name
// ends so, in which that one is damaged.
inline void ForEachDamage(
    const std::string& folder, const std::string& end,
    const std::function<void(const std::string& copy)>& check) {
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".safetensors") continue;
    const auto opened = model::SafetensorsFile::Open(file.path());
    ASSERT_TRUE(opened.ok()) << opened.status();
    for (const auto& [name, entry] : (*opened)->tensors()) {
      if (!absl::EndsWith(name, end)) continue;
      SCOPED_TRACE(name);
      const std::string copy =
          absl::StrCat(::testing::TempDir(), "damaged_draft_", getpid());
      std::filesystem::remove_all(copy);
      std::filesystem::copy(folder, copy);
      Damage(absl::StrCat(copy, "/", file.path().filename().string()), entry);
      check(copy);
      std::filesystem::remove_all(copy);
      ++count;
    }
  }
  EXPECT_GT(count, 0) << "no tensor is called so";
}

}  // namespace nacre::worker

#endif  // TESTS_WORKER_DAMAGED_DRAFT_H_
