// The log-probabilities of all words of a text under a model.
#pragma once
#include <string>
#include <vector>

#include "ngram/model.h"
#include "text/scanner.h"

namespace blackout::ngram {

// Sums over a text, unknown words apart. Sentence ends count as words.
struct Totals {
  uint64_t words = 0, sentences = 0, unknown = 0;
  double log10 = 0, log10_unknown = 0;
};

// Words of a piece of text as ids of the model.
struct WordIds {
  void word(const char *data, size_t size, const char *, bool) {
    const Id id = model->find({data, size});
    ids.push_back(id == kNone ? model->unk : id);
  }
  void line_end() { ids.push_back(model->eos); }
  void flush() {}

  const Model *model = nullptr;
  std::vector<Id> ids;
};

class Evaluator {
 public:
  // With `dump`, each word gives a line "word<TAB>log10 probability" in `lines`.
  Evaluator(const Model &model, const TextOptions &options, size_t threads, bool dump);

  size_t feed(const uint8_t *data, size_t size, bool last);

  const Totals &totals() const { return totals_; }
  std::string lines;

 private:
  void score(const std::vector<Id> &ids);

  const Model &model_;
  bool dump_;
  std::vector<WordIds> pieces_;
  ParallelScanner<WordIds> scanner_;
  State state_;
  Totals totals_;
};

}  // namespace blackout::ngram
