#include "ngram/write.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/threads.h"

namespace blackout::ngram {
namespace {

// Log of zero is -99 in ARPA files.
double safe_log10(double value) { return value > 1e-99 ? std::log10(value) : -99.0; }

}  // namespace

char *format_log10(double value, char *out) {
  const uint64_t scaled = static_cast<uint64_t>(std::fabs(value) * 1e7 + 0.5);
  if (scaled == 0) {
    *out++ = '0';
    return out;
  }
  if (value < 0) *out++ = '-';
  uint32_t whole = static_cast<uint32_t>(scaled / 10000000);
  uint32_t decimals = static_cast<uint32_t>(scaled % 10000000);
  char digits[10];
  int n = 0;
  do digits[n++] = static_cast<char>('0' + whole % 10);
  while ((whole /= 10) > 0);
  while (n > 0) *out++ = digits[--n];
  if (decimals == 0) return out;
  *out++ = '.';
  for (int i = 7; i-- > 0; decimals /= 10) out[i] = static_cast<char>('0' + decimals % 10);
  out += 7;
  while (out[-1] == '0') --out;
  return out;
}

ArpaLines::ArpaLines(int order, bool backoffs, const WordTexts &words, size_t threads,
                     const Write &write)
    : order_(static_cast<size_t>(order)), backoffs_(backoffs), words_(words), write_(write) {
  threads_ = start_threads(threads, [this](size_t) { work(); });
}

ArpaLines::~ArpaLines() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  for (std::thread &thread : threads_) thread.join();
}

void ArpaLines::submit() {
  auto block = std::make_unique<Block>();
  block->words.swap(records_);
  block->numbers.swap(numbers_);
  if (threads_.empty()) {  // the system gave none
    format(*block);
    block->taken = block->done = true;
  }
  size_t waiting;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    blocks_.push_back(std::move(block));
    waiting = blocks_.size();
  }
  changed_.notify_all();
  if (waiting > 2 * threads_.size() + 1) write_first();
}

void ArpaLines::write_first() {
  std::unique_ptr<Block> block;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return raised_ || blocks_.front()->done; });
    if (raised_) std::rethrow_exception(raised_);
    block = std::move(blocks_.front());
    blocks_.pop_front();
  }
  write_(block->text.data(), block->text.size());
}

void ArpaLines::finish() {
  if (!numbers_.empty()) submit();
  while (!blocks_.empty()) write_first();
}

void ArpaLines::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    auto ready = std::find_if(blocks_.begin(), blocks_.end(), [](auto &b) { return !b->taken; });
    if (ready == blocks_.end()) {
      if (over_) return;
      changed_.wait(lock);
      continue;
    }
    if (over_) return;
    Block &block = **ready;
    block.taken = true;
    lock.unlock();
    try {
      format(block);
    } catch (...) {
      lock.lock();
      raised_ = std::current_exception();
      changed_.notify_all();
      return;
    }
    lock.lock();
    block.done = true;
    changed_.notify_all();
  }
}

void ArpaLines::format(Block &block) const {
  const size_t records = block.numbers.size() / 2;
  size_t bytes = records * 48 + WordTexts::kSlack;
  for (Word w : block.words) bytes += words_.size(w) + 1;
  block.text.resize(bytes);
  char *out = block.text.data();
  const Word *w = block.words.data(), *const end = w + block.words.size();
  const size_t ahead = 8 * order_;
  for (size_t i = 0; i < records; ++i, w += order_) {
    for (size_t k = 0; k < order_ && w + ahead + k < end; ++k) words_.prefetch(w[ahead + k]);
    out = format_log10(std::min(0.0, safe_log10(block.numbers[2 * i])), out);
    for (size_t k = order_; k-- > 0;) {
      *out++ = k + 1 == order_ ? '\t' : ' ';
      out = words_.copy(w[k], out);
    }
    if (backoffs_) {
      *out++ = '\t';
      out = format_log10(safe_log10(block.numbers[2 * i + 1]), out);
    }
    *out++ = '\n';
  }
  block.text.resize(static_cast<size_t>(out - block.text.data()));
}

void write_section(const Spool &probabilities, const Spool &gammas, ArpaLines &lines, Tick &tick) {
  SpoolReader grams(probabilities), contexts(gammas);
  const size_t order = probabilities.order();
  contexts.next();
  while (const Word *w = grams.next()) {
    auto behind = [&] {
      const Word *context = contexts.current();
      return context && std::lexicographical_compare(context, context + order, w, w + order);
    };
    while (behind()) contexts.next();
    const Word *context = contexts.current();
    const bool is_context = context && std::equal(w, w + order, context);
    lines.put(w, grams.value(), is_context ? contexts.value() : 1.0f);
    tick();
  }
}

}  // namespace blackout::ngram
