// Sorts more records than memory holds.
//
// Records are collected in one buffer. A full buffer is sorted by all threads, each its own
// part, and the merged parts go to a temporary file as a run. Reading merges the runs. When
// everything fitted into the buffer, nothing is written at all. Equal records may be combined
// wherever two of them meet.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/threads.h"
#include "ngram/big_buffer.h"
#include "ngram/temp_file.h"

namespace blackout::ngram {

struct Resources {
  size_t memory;       // bytes
  size_t threads;
  std::string folder;  // for temporary files
};

// A sorted sequence, in memory or in a file.
template <class Record>
class Run {
 public:
  Run(const Record *begin, const Record *end) : at_(begin), end_(end) {}
  Run(const TempFile *file, uint64_t offset, uint64_t records)
      : file_(file), offset_(offset), left_(records) {}

  void buffer_records(size_t n) { capacity_ = n; }

  const Record *head() {
    if (at_ == end_ && left_ > 0) fill();
    return at_ == end_ ? nullptr : at_;
  }
  void pop() { ++at_; }

 private:
  void fill() {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(left_, capacity_));
    buffer_.resize(n);
    file_->read(offset_, buffer_.data(), n * sizeof(Record));
    offset_ += n * sizeof(Record);
    left_ -= n;
    at_ = buffer_.data();
    end_ = at_ + n;
  }

  const Record *at_ = nullptr, *end_ = nullptr;
  const TempFile *file_ = nullptr;
  uint64_t offset_ = 0, left_ = 0;
  size_t capacity_ = 1;
  std::vector<Record> buffer_;
};

// Merges runs: a heap of their heads.
template <class Record, class Less>
class Merge {
 public:
  explicit Merge(std::vector<Run<Record>> runs) : runs_(std::move(runs)) {
    for (size_t i = 0; i < runs_.size(); ++i)
      if (const Record *head = runs_[i].head()) heap_.push_back({head, i});
    for (size_t i = heap_.size(); i-- > 0;) sift(i);
  }

  // The next record, or null; valid until the next call.
  const Record *next() {
    if (started_) advance();
    started_ = true;
    return heap_.empty() ? nullptr : heap_[0].head;
  }

 private:
  struct Source {
    const Record *head;
    size_t run;
  };

  void advance() {
    Run<Record> &run = runs_[heap_[0].run];
    run.pop();
    if (const Record *head = run.head()) {
      heap_[0].head = head;
    } else {
      heap_[0] = heap_.back();
      heap_.pop_back();
    }
    sift(0);
  }

  void sift(size_t i) {
    const size_t n = heap_.size();
    if (i >= n) return;
    const Source moving = heap_[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
      if (child + 1 < n && less_(*heap_[child + 1].head, *heap_[child].head)) ++child;
      if (!less_(*heap_[child].head, *moving.head)) break;
      heap_[i] = heap_[child];
    }
    heap_[i] = moving;
  }

  std::vector<Run<Record>> runs_;
  std::vector<Source> heap_;
  Less less_;
  bool started_ = false;
};

struct KeepAll {
  template <class Record>
  bool operator()(Record &, const Record &) const {
    return false;
  }
};

// Combine(a, b) folds b into a and says true when the two are the same thing.
template <class Record, class Less, class Combine = KeepAll>
class ExternalSorter {
 public:
  explicit ExternalSorter(const Resources &resources)
      : resources_(resources),
        capacity_(std::max<size_t>(resources.memory / sizeof(Record), 16)),
        file_(resources.folder) {}

  void push(const Record &record) {
    if (size_ == capacity_) spill();
    if (!buffer_.get()) buffer_.allocate(capacity_);
    buffer_.get()[size_++] = record;
  }

  // No more pushes; next() follows.
  void finish() {
    if (file_.used() && size_ > 0) spill();
    if (file_.used()) buffer_.reset();
    merge_ = std::make_unique<Merge<Record, Less>>(file_.used() ? file_runs() : sorted_parts());
    head_ = merge_->next();
  }

  // The next record in order (equal ones combined), or null behind the last.
  const Record *next() { return combined_next(*merge_, head_); }

  // Gives the memory back.
  void release() {
    merge_.reset();
    buffer_.reset();
  }

 private:
  struct Extent {
    uint64_t offset, records;
    int level;
  };
  static constexpr size_t kFanIn = 64;

  std::vector<Run<Record>> sorted_parts() {
    Record *data = buffer_.get();
    const size_t parts = std::max<size_t>(1, std::min(resources_.threads, size_ / 4096));
    std::vector<Run<Record>> runs;
    for (size_t i = 0; i < parts; ++i)
      runs.emplace_back(data + size_ * i / parts, data + size_ * (i + 1) / parts);
    run_pieces(parts, [&](size_t i) {
      std::sort(data + size_ * i / parts, data + size_ * (i + 1) / parts, Less());
    });
    return runs;
  }

  std::vector<Run<Record>> runs_from(size_t first) {
    std::vector<Run<Record>> runs;
    for (size_t i = first; i < extents_.size(); ++i)
      runs.emplace_back(&file_, extents_[i].offset, extents_[i].records);
    const size_t share = resources_.memory / (runs.size() + 1) / sizeof(Record);
    const size_t most = (size_t{1} << 20) / sizeof(Record);
    for (Run<Record> &run : runs) run.buffer_records(std::clamp<size_t>(share, 64, most));
    return runs;
  }
  std::vector<Run<Record>> file_runs() { return runs_from(0); }

  void spill() {
    write_run(sorted_parts(), 0);
    size_ = 0;
    // Sixty-four runs of one level become one of the next: few heads to merge in the end.
    while (extents_.size() >= kFanIn &&
           extents_[extents_.size() - kFanIn].level == extents_.back().level) {
      const int level = extents_.back().level + 1;
      const size_t first = extents_.size() - kFanIn;
      std::vector<Run<Record>> runs = runs_from(first);
      extents_.resize(first);
      write_run(std::move(runs), level);
    }
  }

  void write_run(std::vector<Run<Record>> runs, int level) {
    Extent extent{file_.size(), 0, level};
    Merge<Record, Less> merge(std::move(runs));
    const Record *head = merge.next();
    std::vector<Record> out;
    out.reserve(kWriteRecords);
    while (const Record *record = combined_next(merge, head)) {
      out.push_back(*record);
      ++extent.records;
      if (out.size() == kWriteRecords) {
        file_.append(out.data(), out.size() * sizeof(Record));
        out.clear();
      }
    }
    if (!out.empty()) file_.append(out.data(), out.size() * sizeof(Record));
    extents_.push_back(extent);
  }

  const Record *combined_next(Merge<Record, Less> &merge, const Record *&head) {
    if (!head) return nullptr;
    current_ = *head;
    while ((head = merge.next()) && Combine()(current_, *head)) {
    }
    return &current_;
  }

  static constexpr size_t kWriteRecords = 4096;
  Resources resources_;
  size_t capacity_, size_ = 0;
  BigBuffer<Record> buffer_;
  TempFile file_;
  std::vector<Extent> extents_;
  std::unique_ptr<Merge<Record, Less>> merge_;
  const Record *head_ = nullptr;
  Record current_;
};

}  // namespace blackout::ngram
