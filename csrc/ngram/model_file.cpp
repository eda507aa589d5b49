#include "ngram/model_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "common/checked_size.h"
#include "text/checksum.h"
#include "text/utf8.h"

namespace blackout::ngram {
namespace {

constexpr char kMagic[8] = {'B', 'O', 'n', 'g', 'r', 'a', 'm', '\n'};
constexpr uint32_t kVersion = 1, kByteOrder = 0x01020304;
constexpr size_t kAlign = 64;

struct Header {
  char magic[8];
  uint32_t version, byte_order;
  uint32_t order, words, unk, bos, eos, unused;
  uint64_t counts[kMaxModelOrder];
  uint64_t slots, text_bytes, file_bytes;
  uint64_t body_checksum;    // of all that follows the header
  uint64_t header_checksum;  // with itself as 0
};

uint64_t checksum(const void *data, size_t size) {
  Checksum sum;
  sum.update(static_cast<const uint8_t *>(data), size);
  return sum.value();
}

uint64_t own_checksum(Header header) {
  header.header_checksum = 0;
  return checksum(&header, sizeof header);
}

size_t padded(size_t bytes) { return checked_round_up(bytes, kAlign); }

[[noreturn]] void refuse(const std::string &what) { throw std::invalid_argument(what); }

// The arrays of the body, in their order in the file.
struct Section {
  const void *data;
  size_t bytes;
};

size_t levels(size_t order) { return order > 1 ? order - 1 : 1; }

std::vector<Section> sections(const Model &m, size_t text_bytes) {
  std::vector<Section> all{{m.text_ends, checked_multiply(m.words, sizeof(uint64_t))},
                           {m.text, text_bytes},
                           {m.slots, checked_multiply(m.slot_mask + 1, sizeof(Id))}};
  for (size_t i = 0; i < levels(m.order); ++i)
    all.push_back({m.nodes[i], checked_multiply(checked_add(m.counts[i], 1), sizeof(Node))});
  if (m.order > 1)
    all.push_back({m.leaves, checked_multiply(m.counts[m.order - 1], sizeof(Leaf))});
  return all;
}

bool is_log_probability(float value) { return value <= 0 && value >= -kMostLog10; }
bool is_log_weight(float value) { return std::fabs(value) <= kMostLog10; }  // false for NaN

// Words that are words, and a table that finds each of them: all are there once.
bool words_sound(const Model &m, size_t text_bytes) {
  uint64_t end = 0, empty = 0;
  for (Id i = 0; i < m.words; ++i) {
    if (m.text_ends[i] < end) return false;
    end = m.text_ends[i];
  }
  if (end != text_bytes) return false;
  for (uint64_t i = 0; i <= m.slot_mask; ++i) {
    if (m.slots[i] == kNone) ++empty;
    else if (m.slots[i] >= m.words) return false;
  }
  if (empty == 0) return false;
  for (Id i = 0; i < m.words; ++i) {
    const std::string_view word = m.word(i);
    const uint8_t *begin = reinterpret_cast<const uint8_t *>(word.data());
    if (utf8_fault(begin, begin + word.size()) != begin + word.size()) return false;
    if (m.find(word) != i) return false;
  }
  const bool unknown = m.word(m.unk) == "<unk>" || m.word(m.unk) == "<UNK>";
  return unknown && m.word(m.eos) == "</s>" && m.find("<s>") == m.bos;
}

// Children cover the level below, each family sorted; words and probabilities are some.
template <class Entry>
bool families_sound(const Node *parents, uint64_t n, const Entry *entries, uint64_t count,
                    Id words) {
  if (parents[0].first != 0 || parents[n].first != count) return false;
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t first = parents[i].first, end = parents[i + 1].first;
    if (first > end || end > count) return false;
    for (uint64_t k = first; k < end; ++k) {
      if (entries[k].word >= words || !is_log_probability(entries[k].prob)) return false;
      if (k > first && entries[k - 1].word >= entries[k].word) return false;
    }
  }
  return true;
}

bool backoffs_sound(const Node *nodes, uint64_t n) {
  bool sound = true;
  for (uint64_t i = 0; i < n; ++i) sound &= is_log_weight(nodes[i].backoff);
  return sound;
}

// Every number that is used as an index must be one, every log-probability a log-probability:
// the checksum tells damage, this tells a file made to do harm.
bool consistent(const Model &m, size_t text_bytes) {
  if (!words_sound(m, text_bytes)) return false;
  for (Id i = 0; i < m.words; ++i)
    if (m.nodes[0][i].word != i || !is_log_probability(m.nodes[0][i].prob)) return false;
  for (size_t i = 0; i < levels(m.order); ++i) {
    const Node *nodes = m.nodes[i];
    if (!backoffs_sound(nodes, m.counts[i])) return false;
    if (i + 2 < m.order
            ? !families_sound(nodes, m.counts[i], m.nodes[i + 1], m.counts[i + 1], m.words)
            : m.order > 1 &&
                  !families_sound(nodes, m.counts[i], m.leaves, m.counts[i + 1], m.words))
      return false;
  }
  return true;
}

void check_header(const Header &h, size_t size) {
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0) refuse("not a binary n-gram model");
  if (h.byte_order != kByteOrder) refuse("made on a machine with another byte order");
  if (h.version != kVersion)
    refuse("binary n-gram model of version " + std::to_string(h.version) + ", this program reads " +
           std::to_string(kVersion));
  if (h.header_checksum != own_checksum(h)) refuse("damaged: the header's checksum is wrong");
  if (h.file_bytes != size)
    refuse("damaged: " + std::to_string(h.file_bytes) + " bytes expected, " +
           std::to_string(size) + " found");
  const bool sound = h.order >= 1 && h.order <= kMaxModelOrder && h.counts[0] == h.words &&
                     h.unk < h.words && (h.bos == kNone || h.bos < h.words) &&
                     h.eos < h.words && h.slots > h.words &&
                     (h.slots & (h.slots - 1)) == 0;
  if (!sound) refuse("damaged: its numbers contradict one another");
}

}  // namespace

void save_model(const Model &model, const WriteBytes &write) {
  const size_t text_bytes = model.words ? model.text_ends[model.words - 1] : 0;
  const std::vector<Section> all = sections(model, text_bytes);
  const std::string zeros(kAlign, '\0');
  const size_t gap = padded(sizeof(Header)) - sizeof(Header);
  Checksum body;
  body.update(reinterpret_cast<const uint8_t *>(zeros.data()), gap);
  size_t bytes = sizeof(Header) + gap;
  for (const Section &s : all) {
    body.update(static_cast<const uint8_t *>(s.data), s.bytes);
    body.update(reinterpret_cast<const uint8_t *>(zeros.data()), padded(s.bytes) - s.bytes);
    bytes += padded(s.bytes);
  }

  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = kVersion;
  h.byte_order = kByteOrder;
  h.order = static_cast<uint32_t>(model.order);
  h.words = model.words;
  h.unk = model.unk;
  h.bos = model.bos;
  h.eos = model.eos;
  std::copy(model.counts.begin(), model.counts.end(), h.counts);
  h.slots = model.slot_mask + 1;
  h.text_bytes = text_bytes;
  h.file_bytes = bytes;
  h.body_checksum = body.value();
  h.header_checksum = own_checksum(h);

  write(reinterpret_cast<const char *>(&h), sizeof h);
  write(zeros.data(), gap);
  for (const Section &s : all) {
    constexpr size_t kPiece = size_t{16} << 20;
    const char *p = static_cast<const char *>(s.data);
    for (size_t at = 0; at < s.bytes; at += kPiece) write(p + at, std::min(kPiece, s.bytes - at));
    write(zeros.data(), padded(s.bytes) - s.bytes);
  }
}

MappedModel::MappedModel(const std::string &path, bool verify) {
  map(path);
  try {
    read(verify);
  } catch (const std::length_error &) {
    ::munmap(const_cast<char *>(data_), size_);
    refuse("damaged: its parts do not fit into the file");
  } catch (...) {
    ::munmap(const_cast<char *>(data_), size_);
    throw;
  }
}

MappedModel::~MappedModel() { ::munmap(const_cast<char *>(data_), size_); }

void MappedModel::map(const std::string &path) {
  const int fd = ::open(path.c_str(), O_RDONLY);
  if (fd < 0) refuse(std::string("cannot be read: ") + std::strerror(errno));
  struct stat info;
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  size_ = regular ? static_cast<size_t>(info.st_size) : 0;
  void *data = MAP_FAILED;
  if (size_ >= sizeof(Header)) data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  if (data == MAP_FAILED)
    refuse(size_ < sizeof(Header) ? "not a binary n-gram model" : "cannot be mapped into memory");
  data_ = static_cast<const char *>(data);
}

void MappedModel::read(bool verify) {
  Header h;
  std::memcpy(&h, data_, sizeof h);
  check_header(h, size_);
  model_.order = h.order;
  model_.words = h.words;
  model_.unk = h.unk;
  model_.bos = h.bos;
  model_.eos = h.eos;
  std::copy(h.counts, h.counts + kMaxModelOrder, model_.counts.begin());
  model_.slot_mask = h.slots - 1;

  std::vector<const char *> starts;
  size_t at = padded(sizeof h);
  for (const Section &s : sections(model_, h.text_bytes)) {
    if (at > size_ || s.bytes > size_ - at) refuse("damaged: its parts do not fit into the file");
    starts.push_back(data_ + at);
    at += padded(s.bytes);
  }
  if (at != size_) refuse("damaged: its parts do not fill the file");
  model_.text_ends = reinterpret_cast<const uint64_t *>(starts[0]);
  model_.text = starts[1];
  model_.slots = reinterpret_cast<const Id *>(starts[2]);
  for (size_t i = 0; i < levels(h.order); ++i)
    model_.nodes[i] = reinterpret_cast<const Node *>(starts[3 + i]);
  if (h.order > 1) model_.leaves = reinterpret_cast<const Leaf *>(starts.back());
  if (!verify) return;
  if (checksum(data_ + sizeof h, size_ - sizeof h) != h.body_checksum)
    refuse("damaged: its checksum is wrong");
  if (!consistent(model_, h.text_bytes)) refuse("damaged: its numbers contradict one another");
}

}  // namespace blackout::ngram
