// A nameless file in a folder of the user's choice: it vanishes with the process, however that ends.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace blackout::ngram {

class TempFile {
 public:
  explicit TempFile(std::string folder) : folder_(std::move(folder)) {}
  ~TempFile();
  TempFile(const TempFile &) = delete;
  TempFile &operator=(const TempFile &) = delete;

  bool used() const { return fd_ >= 0; }
  uint64_t size() const { return size_; }
  void append(const void *data, size_t bytes);
  void read(uint64_t offset, void *data, size_t bytes) const;

 private:
  void open();
  [[noreturn]] void fail(const char *doing) const;

  std::string folder_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

}  // namespace blackout::ngram
