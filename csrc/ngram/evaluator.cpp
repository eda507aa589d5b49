#include "ngram/evaluator.h"

#include "ngram/write.h"

namespace blackout::ngram {

Evaluator::Evaluator(const Model &model, const TextOptions &options, size_t threads, bool dump)
    : model_(model),
      dump_(dump),
      pieces_(threads),
      scanner_(options, pieces_),
      state_(model.begin()) {
  for (WordIds &piece : pieces_) piece.model = &model_;
}

size_t Evaluator::feed(const uint8_t *data, size_t size, bool last) {
  const size_t used = scanner_.feed(data, size, last);
  for (WordIds &piece : pieces_) {
    for (Id id : piece.ids) id == kNone ? end_sentence() : score(id);
    piece.ids.clear();
  }
  return used;
}

void Evaluator::score(Id id) {
  const double log10 = model_.score(state_, id).log10;
  ++totals_.words;
  totals_.log10 += log10;
  if (id == model_.unk) {
    ++totals_.unknown;
    totals_.log10_unknown += log10;
  }
  if (dump_) {
    char number[32];
    lines += model_.word(id);
    lines += '\t';
    lines.append(number, format_log10(log10, number));
    lines += '\n';
  }
}

void Evaluator::end_sentence() {
  score(model_.eos == kNone ? model_.unk : model_.eos);
  ++totals_.sentences;
  state_ = model_.begin();
}

}  // namespace blackout::ngram
