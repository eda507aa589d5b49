#include "ngram/evaluator.h"

#include "ngram/score_text.h"
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
    score(piece.ids);
    piece.ids.clear();
  }
  return used;
}

void Evaluator::score(const std::vector<Id> &ids) {
  std::vector<float> scores(ids.size());
  score_text(model_, ids.data(), ids.size(), state_, scores.data());
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool unknown = ids[i] == model_.unk;
    ++totals_.words;
    totals_.log10 += scores[i];
    totals_.sentences += ids[i] == model_.eos;
    totals_.unknown += unknown;
    if (unknown) totals_.log10_unknown += scores[i];
    if (!dump_) continue;
    char number[32];
    lines += model_.word(ids[i]);
    lines += '\t';
    lines.append(number, format_log10(scores[i], number));
    lines += '\n';
  }
}

}  // namespace blackout::ngram
