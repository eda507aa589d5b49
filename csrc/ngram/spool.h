// A sequence of n-grams with one number each, written once and read back in order, on disk.
#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "ngram/gram.h"
#include "ngram/temp_file.h"

namespace blackout::ngram {

class Spool {
 public:
  Spool(int order, std::string folder)
      : order_(static_cast<size_t>(order)), file_(std::move(folder)) {}

  void append(const Word *w, float value) {
    if (buffer_.size() + order_ + 1 > kBuffered) flush();
    buffer_.insert(buffer_.end(), w, w + order_);
    Word bits;
    std::memcpy(&bits, &value, sizeof bits);
    buffer_.push_back(bits);
    ++count_;
  }

  void flush() {
    if (!buffer_.empty()) file_.append(buffer_.data(), buffer_.size() * sizeof(Word));
    buffer_.clear();
  }

  size_t order() const { return order_; }
  uint64_t count() const { return count_; }
  const TempFile &file() const { return file_; }

 private:
  static constexpr size_t kBuffered = 1 << 16;  // words
  size_t order_;
  TempFile file_;
  std::vector<Word> buffer_;
  uint64_t count_ = 0;
};

class SpoolReader {
 public:
  // The spool must have been flushed.
  explicit SpoolReader(const Spool &spool)
      : spool_(spool), stride_(spool.order() + 1), left_(spool.count()) {}

  // The next n-gram, or null behind the last one.
  const Word *next() {
    at_ += stride_;
    if (at_ >= buffer_.size()) {
      if (left_ == 0) return current_ = nullptr;
      fill();
    }
    return current_ = buffer_.data() + at_;
  }

  const Word *current() const { return current_; }

  float value() const {
    float v;
    std::memcpy(&v, current_ + stride_ - 1, sizeof v);
    return v;
  }

 private:
  void fill() {
    const size_t n = static_cast<size_t>(left_ < kRecords ? left_ : kRecords);
    buffer_.resize(n * stride_);
    spool_.file().read(offset_, buffer_.data(), buffer_.size() * sizeof(Word));
    offset_ += buffer_.size() * sizeof(Word);
    left_ -= n;
    at_ = 0;
  }

  static constexpr uint64_t kRecords = 1 << 14;
  const Spool &spool_;
  size_t stride_;
  uint64_t left_, offset_ = 0;
  std::vector<Word> buffer_;
  size_t at_ = 0;
  const Word *current_ = nullptr;
};

}  // namespace blackout::ngram
