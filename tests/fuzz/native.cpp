// The native parsers under libFuzzer; the variable FUZZ names the one: arpa, ngram or text
// (tests/fuzz/run). Bytes that are no such file must be refused with an exception of the
// standard library; what is taken must give log-probabilities. Everything else ends the program.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ngram/arpa.h"
#include "ngram/model_file.h"
#include "ngram/score_text.h"
#include "text/checksum.h"
#include "text/counter.h"
#include "text/encoder.h"

namespace {

[[noreturn]] void found(const char *what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void use_model(const blackout::ngram::Model &model) {
  using blackout::ngram::Id;
  std::vector<Id> ids;
  for (Id i = 0; i < model.words && i < 64; ++i) ids.push_back((i * 7 + 3) % model.words);
  std::vector<float> scores(ids.size());
  blackout::ngram::State state = model.begin();
  blackout::ngram::score_text(model, ids.data(), ids.size(), state, scores.data());
  for (const float score : scores)
    if (!(score <= 0) || !std::isfinite(score)) found("a log-probability that is none");
  for (Id i = 0; i < model.words && i < 64; ++i)
    if (model.find(model.word(i)) != i) found("a word that is not found");
}

// The file may come in any pieces: the first byte says where it is cut.
void parse_arpa(const uint8_t *data, size_t size) {
  if (size == 0) return;
  const size_t cut = data[0] * (size - 1) / 255;
  ++data, --size;
  blackout::ngram::ArpaReader reader;
  const size_t used = reader.feed(data, cut, false);
  reader.feed(data + used, size - used, true);
  const blackout::ngram::ModelData model = reader.take();
  use_model(model.view());
}

uint64_t checksum(const uint8_t *data, size_t size) {
  blackout::Checksum sum;
  sum.update(data, size);
  return sum.value();
}

// With sizes and checksums made right, so that they do not hide the rest.
void parse_ngram(const uint8_t *data, size_t size) {
  constexpr size_t kHeader = 8 + 8 * 4 + 15 * 8, kFile = kHeader - 24;
  if (size < kHeader) return;
  std::vector<uint8_t> file(data, data + size);
  const uint64_t length = size, body = checksum(file.data() + kHeader, size - kHeader);
  std::memcpy(file.data() + kFile, &length, 8);
  std::memcpy(file.data() + kFile + 8, &body, 8);
  std::memset(file.data() + kFile + 16, 0, 8);
  const uint64_t head = checksum(file.data(), kHeader);
  std::memcpy(file.data() + kFile + 16, &head, 8);
  const int handle = memfd_create("model", 0);
  if (write(handle, file.data(), size) != static_cast<ssize_t>(size)) found("no memory file");
  const std::string path = "/proc/self/fd/" + std::to_string(handle);
  try {
    const blackout::ngram::MappedModel model(path, true);
    use_model(model.view());
  } catch (...) {
    close(handle);
    throw;
  }
  close(handle);
}

// Counted, and encoded with the words that were counted; in pieces as above.
void parse_text(const uint8_t *data, size_t size) {
  if (size < 2) return;
  blackout::TextOptions options;
  options.keep_empty = data[0] & 1;
  options.skip_markers = data[0] & 2;
  options.replace_invalid = data[0] & 4;
  const size_t threads = data[0] == 0xFF ? 2 : 1, cut = data[1] * (size - 2) / 255;
  data += 2, size -= 2;
  blackout::WordCounter counter(options, threads);
  size_t used = counter.feed(data, cut, false);
  counter.feed(data + used, size - used, true);
  const blackout::CountedWords counted = counter.result();
  const auto map = std::make_shared<const blackout::WordMap>(counted.words, counted.ends.data(),
                                                             counted.ends.size());
  blackout::Encoder encoder(map, options, threads);
  used = encoder.feed(data, cut, false);
  encoder.feed(data + used, size - used, true);
  uint64_t words = 0;
  for (const uint64_t count : counted.counts) words += count;
  if (encoder.total_sentences != counted.sentences) found("sentences differ");
  if (encoder.total_tokens != words + counted.sentences) found("words differ");
}

using Parse = void (*)(const uint8_t *, size_t);

Parse chosen() {
  const char *name = std::getenv("FUZZ");
  if (name && !std::strcmp(name, "arpa")) return parse_arpa;
  if (name && !std::strcmp(name, "ngram")) return parse_ngram;
  if (name && !std::strcmp(name, "text")) return parse_text;
  found("FUZZ must be arpa, ngram or text");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const Parse parse = chosen();
  try {
    parse(data, size);
  } catch (const std::exception &refusal) {
    if (!*refusal.what()) found("a refusal without a word");
  }
  return 0;
}
