#include "text/encoder.h"

namespace blackout {

WordMap::WordMap(std::string_view words, const uint64_t *ends, size_t count) : table_(count) {
  size_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    if (ends[i] <= begin || ends[i] > words.size())
      throw std::invalid_argument("word " + std::to_string(i) + " is empty or out of order");
    const char *word = words.data() + begin;
    table_[make_key(word, ends[i] - begin, words.data() + words.size())] = i;
    begin = ends[i] + 1;
  }
  if (table_.size() != count) throw std::invalid_argument("a word occurs twice");
}

Encoder::Encoder(std::shared_ptr<const WordMap> map, TextOptions options, size_t threads)
    : map_(std::move(map)),
      sinks_(threads, EncodeSink(map_->table())),
      scanner_(options, sinks_) {}

size_t Encoder::feed(const uint8_t *data, size_t size, bool last) {
  for (EncodeSink &sink : sinks_) sink.clear();
  const size_t used = scanner_.feed(data, size, last);
  tokens.clear();
  ends.clear();
  for (EncodeSink &sink : sinks_) {
    for (uint64_t end : sink.ends) ends.push_back(total_tokens + end);
    tokens.insert(tokens.end(), sink.tokens.begin(), sink.tokens.end());
    total_tokens += sink.tokens.size();
    total_sentences += sink.ends.size();
    total_unknown += sink.unknown;
    sink.unknown = 0;
  }
  return used;
}

}  // namespace blackout
