#include "model/fingerprint.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/check.h"

namespace nacre::model {
namespace {

// The layout of what is hashed: raise it with any change of that.
constexpr char kLayout[] = "nacre-fingerprint-v2";
// Part of the result, so never to be changed without kLayout.
constexpr size_t kChunkBytes = size_t{4} << 20;
constexpr int kMaxThreads = 8;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) {
    NACRE_CHECK(context_ != nullptr &&
                    EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1,
                "SHA-256 is not available");
  }
  ~Sha256() { EVP_MD_CTX_free(context_); }
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Add(const void* data, size_t size) {
    EVP_DigestUpdate(context_, data, size);
  }
  // Hashes the length first, so that two fields never run into each other.
  void AddField(absl::string_view bytes) {
    const uint64_t size = bytes.size();
    Add(&size, sizeof(size));
    Add(bytes.data(), bytes.size());
  }
  void Finish(unsigned char* digest) {
    NACRE_CHECK(EVP_DigestFinal_ex(context_, digest, nullptr) == 1,
                "SHA-256 failed");
  }

 private:
  EVP_MD_CTX* context_;
};

size_t NumChunks(size_t bytes) {
  return (bytes + kChunkBytes - 1) / kChunkBytes;
}

}  // namespace

FingerprintJob::FingerprintJob(absl::string_view config_json,
                               std::vector<Part> parts, int num_threads)
    : config_json_(config_json), parts_(std::move(parts)) {
  for (const Part& part : parts_) {
    for (size_t at = 0; at < part.bytes.size(); at += kChunkBytes) {
      chunks_.push_back({part.bytes.substr(at, kChunkBytes), part.file});
    }
  }
  digests_.resize(chunks_.size());
  try {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this] {
        while (HashNext()) {
        }
      });
    }
  } catch (const std::system_error&) {
    // The process may have no more threads: Finish does the rest.
  }
}

FingerprintJob::~FingerprintJob() {
  next_.store(chunks_.size());
  JoinAll();
}

int FingerprintJob::DefaultThreads() {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores - 1, 1, kMaxThreads);
}

bool FingerprintJob::HashNext() {
  const size_t index = next_.fetch_add(1);
  if (index >= chunks_.size()) return false;
  const Chunk& chunk = chunks_[index];
  Sha256 hash;
  hash.Add(chunk.bytes.data(), chunk.bytes.size());
  hash.Finish(digests_[index].data());
  if (chunk.file != nullptr) chunk.file->GiveBack(chunk.bytes);
  return true;
}

void FingerprintJob::JoinAll() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

std::string FingerprintJob::Finish(const ProgressCallback& progress) {
  while (HashNext()) {
    const size_t taken = std::min(next_.load(), chunks_.size());
    if (progress) {
      progress("fingerprint", static_cast<double>(taken) /
                                  static_cast<double>(chunks_.size()));
    }
  }
  JoinAll();
  Sha256 hash;
  hash.AddField(kLayout);
  hash.AddField(config_json_);
  size_t chunk = 0;
  for (const Part& part : parts_) {
    hash.AddField(part.name);
    hash.AddField(part.dtype);
    hash.AddField(part.shape);
    const uint64_t size = part.bytes.size();
    hash.Add(&size, sizeof(size));
    for (size_t i = NumChunks(part.bytes.size()); i > 0; --i, ++chunk) {
      hash.Add(digests_[chunk].data(), digests_[chunk].size());
    }
  }
  Digest digest;
  hash.Finish(digest.data());
  return absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace nacre::model
