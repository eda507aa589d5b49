#include "ngram/estimate.h"

#include <limits>
#include <stdexcept>

namespace blackout::ngram {
namespace {

// Half of the memory holds the counts of the highest order while the other half takes the
// lower orders from it; later the first half serves to bring one order back into suffix order.
Resources half(const Settings &s) { return {s.memory / 2, s.threads, s.folder}; }

// Higher orders have more and longer n-grams: shares that grow with the order squared fit.
std::vector<std::unique_ptr<Order>> make_orders(const Settings &s) {
  size_t shares = 0;
  for (int n = 2; n <= s.order; ++n) shares += static_cast<size_t>(n * n);
  std::vector<std::unique_ptr<Order>> orders;
  for (int n = 2; n <= s.order; ++n) {
    Resources by_context = half(s);
    by_context.memory = by_context.memory / shares * static_cast<size_t>(n * n);
    orders.push_back(make_order(n, by_context, half(s)));
  }
  return orders;
}

class IntoSpool final : public ProbabilitySink {
 public:
  explicit IntoSpool(Spool &spool) : spool_(spool) {}
  void put(const Word *w, float probability) override { spool_.append(w, probability); }

 private:
  Spool &spool_;
};

class IntoLines final : public ProbabilitySink {
 public:
  explicit IntoLines(ArpaLines &lines) : lines_(lines) {}
  void put(const Word *w, float probability) override { lines_.put(w, probability, 1.0f); }

 private:
  ArpaLines &lines_;
};

void put_text(const Write &write, const std::string &text) { write(text.data(), text.size()); }

std::string heading(int order) { return "\\" + std::to_string(order) + "-grams:\n"; }

}  // namespace

void WordNumbers::word(const char *data, size_t size, const char *limit, bool) {
  if (const WordTable::Slot *slot = table->find(make_key(data, size, limit))) {
    numbers.push_back(static_cast<Word>(slot->value));
  } else {
    numbers.push_back(kUnseen);
    unseen.emplace_back(data, size);
  }
}

Estimator::Estimator(const Settings &settings)
    : settings_(settings),
      counts_(make_counts(settings.order, half(settings))),
      counter_(settings.order, *counts_),
      pieces_(settings.threads) {
  next_file();
  for (const char *word : {"<unk>", "<s>", "</s>"}) add_word(word);
  for (WordNumbers &piece : pieces_) piece.table = &table_;
}

Word Estimator::add_word(std::string_view word) {
  uint64_t &value = table_[make_key(word.data(), word.size(), word.data() + word.size())];
  // <unk> has number 0, which is also what a new word has: its slot needs no writing.
  if (value == 0 && (words_.empty() || word != words_[kUnk])) {
    if (words_.size() >= WordNumbers::kUnseen) throw std::runtime_error("more than 4 billion words");
    value = words_.size();
    words_.emplace_back(word);
  }
  return static_cast<Word>(value);
}

void Estimator::announce(std::string_view word) {
  limited_ = true;
  add_word(word);
}

size_t Estimator::feed(const uint8_t *data, size_t size, bool last) {
  const size_t used = scanner_->feed(data, size, last);
  for (WordNumbers &piece : pieces_) count_numbers(piece);
  return used;
}

void Estimator::count_numbers(WordNumbers &piece) {
  size_t next_unseen = 0;
  for (Word number : piece.numbers) {
    if (number == kEos) {
      counter_.end();
    } else if (number != WordNumbers::kUnseen) {
      counter_.word(number);
    } else {
      const std::string &word = piece.unseen[next_unseen++];
      counter_.word(limited_ ? kUnk : add_word(word));
    }
  }
  piece.numbers.clear();
  piece.unseen.clear();
}

std::vector<Discount> Estimator::discounts(const std::vector<Statistics> &statistics,
                                           Estimate &estimate) {
  std::vector<Discount> all(statistics.size());
  for (size_t i = 0; i < all.size(); ++i) {
    std::string failed = closed_form(statistics[i], all[i]);
    if (!failed.empty()) {
      if (!settings_.fallback)
        throw std::invalid_argument("Kneser-Ney discounts of " + std::to_string(i + 1) +
                                    "-grams cannot be estimated from this little data: " + failed +
                                    "; the discount fallback would replace them");
      for (size_t j = 0; j < 3; ++j) all[i].amount[j + 1] = (*settings_.fallback)[j];
    }
    estimate.failed.push_back(std::move(failed));
  }
  return all;
}

Estimate Estimator::estimate(const Write &write, const Progress &progress) {
  std::vector<std::unique_ptr<Order>> orders = make_orders(settings_);
  Unigrams unigrams(words_.size());
  std::vector<CountSink *> sinks{&unigrams};
  for (auto &order : orders) sinks.push_back(order.get());

  counts_->finish();
  Tick tick(progress, "adjusting counts", tokens());
  const std::vector<Statistics> statistics = adjust(*counts_, settings_.prune, sinks, tick);
  counts_->release();
  unigrams.prune_uncounted(settings_.prune[0]);

  Estimate estimate;
  estimate.discounts = discounts(statistics, estimate);
  for (const Statistics &s : statistics) estimate.ngrams.push_back(s.kept);
  estimate.ngrams[0] = unigrams.kept();
  for (uint64_t n : estimate.ngrams)
    if (n > std::numeric_limits<Word>::max() - 1)
      throw std::runtime_error("more than 4 billion n-grams of one order; prune some");
  begin_arpa(estimate.ngrams, write);
  write_orders(unigrams, orders, estimate, write, progress);
  put_text(write, "\n\\end\\\n");
  return estimate;
}

void Estimator::begin_arpa(const std::vector<uint64_t> &ngrams, const Write &write) const {
  std::string text = "\\data\\\n";
  for (size_t i = 0; i < ngrams.size(); ++i)
    text += "ngram " + std::to_string(i + 1) + "=" + std::to_string(ngrams[i]) + "\n";
  put_text(write, text + "\n");
}

void Estimator::write_orders(Unigrams &unigrams, std::vector<std::unique_ptr<Order>> &orders,
                             const Estimate &estimate, const Write &write,
                             const Progress &progress) {
  const WordTexts words(words_);
  const std::vector<Discount> &discounts = estimate.discounts;
  auto lower = std::make_unique<Spool>(1, settings_.folder);
  IntoSpool unigrams_into(*lower);
  unigrams.interpolate(discounts[0], unigrams_into);
  lower->flush();

  for (int n = 2; n <= settings_.order; ++n) {
    Order &order = *orders[static_cast<size_t>(n - 2)];
    const uint64_t expected = estimate.ngrams[static_cast<size_t>(n - 1)];
    Spool gammas(n - 1, settings_.folder);
    Tick backing(progress, std::to_string(n) + "-grams: back-off weights", expected);
    order.back_off(discounts[static_cast<size_t>(n - 1)], gammas, backing);

    put_text(write, heading(n - 1));
    ArpaLines lines(n - 1, true, words, settings_.threads, write);
    Tick writing(progress, std::to_string(n - 1) + "-grams: writing", lower->count());
    write_section(*lower, gammas, lines, writing);
    lines.finish();
    put_text(write, "\n");

    Tick interpolating(progress, std::to_string(n) + "-grams: interpolating", expected);
    auto current = std::make_unique<Spool>(n, settings_.folder);
    if (n < settings_.order) {
      IntoSpool into(*current);
      order.interpolate(*lower, into, interpolating);
      current->flush();
    } else {
      put_text(write, heading(n));
      ArpaLines highest(n, false, words, settings_.threads, write);
      IntoLines into(highest);
      order.interpolate(*lower, into, interpolating);
      highest.finish();
    }
    lower = std::move(current);
    orders[static_cast<size_t>(n - 2)].reset();
  }
  if (settings_.order == 1) {
    put_text(write, heading(1));
    ArpaLines lines(1, false, words, settings_.threads, write);
    IntoLines into(lines);
    unigrams.interpolate(discounts[0], into);
    lines.finish();
  }
}

}  // namespace blackout::ngram
