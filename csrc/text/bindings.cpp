// Python's view of csrc/text/. Long calls let other Python threads run.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include "text/checksum.h"
#include "text/counter.h"
#include "text/encoder.h"
#include "text/streams.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace blackout;

namespace {

template <class T>
using Array = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = Array<const uint8_t>;
template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// A numpy array that owns the vector.
template <class T>
nb::ndarray<nb::numpy, T> numpy(std::vector<T> &&values) {
  auto *kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void *p) noexcept { delete static_cast<std::vector<T> *>(p); });
  return nb::ndarray<nb::numpy, T>(kept->data(), {kept->size()}, owner);
}

TextOptions options(bool keep_empty, bool skip_markers, bool replace_invalid) {
  return {keep_empty, skip_markers, replace_invalid};
}

void bind_checksum(nb::module_ &m) {
  nb::class_<Checksum>(m, "Checksum", "XXH64 of a stream of bytes.")
      .def(nb::init<>())
      .def("update", [](Checksum &c, Bytes data) {
        nb::gil_scoped_release release;
        c.update(data.data(), data.size());
      }, "data"_a)
      .def("value", &Checksum::value);
}

void bind_counter(nb::module_ &m) {
  nb::class_<WordCounter>(m, "WordCounter", "Counts the words of texts.")
      .def("__init__", [](WordCounter *self, bool keep_empty, bool skip_markers,
                          bool replace_invalid, size_t threads) {
        new (self) WordCounter(options(keep_empty, skip_markers, replace_invalid), threads);
      }, nb::kw_only(), "keep_empty"_a, "skip_markers"_a, "replace_invalid"_a, "threads"_a)
      .def("feed", [](WordCounter &c, Bytes data, bool last) {
        nb::gil_scoped_release release;
        return c.feed(data.data(), data.size(), last);
      }, "data"_a, "last"_a)
      .def("next_file", &WordCounter::next_file)
      .def("result", [](WordCounter &c) {
        CountedWords words;
        {
          nb::gil_scoped_release release;
          words = c.result();
        }
        return nb::make_tuple(nb::bytes(words.words.data(), words.words.size()),
                              numpy(std::move(words.ends)), numpy(std::move(words.counts)),
                              words.sentences);
      });
}

void bind_encoder(nb::module_ &m) {
  nb::class_<WordMap>(m, "WordMap", "From a word to its id.")
      .def("__init__", [](WordMap *self, nb::bytes words, Array<const uint64_t> ends) {
        new (self) WordMap({words.c_str(), words.size()}, ends.data(), ends.size());
      }, "words"_a, "ends"_a)
      .def("__len__", &WordMap::size);
  nb::class_<Encoder>(m, "Encoder", "Turns text into word numbers.")
      .def("__init__", [](Encoder *self, std::shared_ptr<WordMap> map, bool keep_empty,
                          bool skip_markers, bool replace_invalid, size_t threads) {
        new (self) Encoder(map, options(keep_empty, skip_markers, replace_invalid), threads);
      }, "map"_a, nb::kw_only(), "keep_empty"_a, "skip_markers"_a, "replace_invalid"_a, "threads"_a)
      .def("feed", [](Encoder &e, Bytes data, bool last) {
        nb::gil_scoped_release release;
        return e.feed(data.data(), data.size(), last);
      }, "data"_a, "last"_a)
      .def("take", [](Encoder &e) {
        return nb::make_tuple(numpy(std::move(e.tokens)), numpy(std::move(e.ends)));
      })
      .def_ro("tokens", &Encoder::total_tokens)
      .def_ro("sentences", &Encoder::total_sentences)
      .def_ro("unknown", &Encoder::total_unknown);
}

// The filler and the arrays it reads.
struct BoundStreams {
  Array<const uint32_t> tokens;
  Array<const uint64_t> offsets;
  std::optional<Array<const uint32_t>> order;
  uint64_t batch, bptt;
  StreamFiller filler;

  TokenText text() const {
    return {tokens.data(), tokens.size(), offsets.data(), offsets.size() - 1,
            order ? order->data() : nullptr};
  }
};

void bind_streams(nb::module_ &m) {
  nb::class_<BoundStreams>(m, "StreamFiller", "Lays sentences into streams, block by block.")
      .def("__init__", [](BoundStreams *self, Array<const uint32_t> tokens,
                          Array<const uint64_t> offsets,
                          std::optional<Array<const uint32_t>> order, uint64_t batch,
                          uint64_t bptt) {
        if (offsets.size() == 0 || (order && order->size() + 1 != offsets.size()))
          throw std::invalid_argument("offsets and order do not fit");
        const TokenText text{tokens.data(), tokens.size(), offsets.data(), offsets.size() - 1,
                             order ? order->data() : nullptr};
        new (self) BoundStreams{tokens, offsets, order, batch, bptt,
                                StreamFiller(text, batch, bptt)};
      }, "tokens"_a, "offsets"_a, "order"_a.none(), "batch"_a, "bptt"_a)
      .def("fill", [](BoundStreams &s, Matrix<int64_t> inputs, Matrix<int64_t> targets,
                      Matrix<bool> mask) {
        for (size_t i = 0; i < 2; ++i) {
          const size_t n = i ? s.batch : s.bptt;
          if (inputs.shape(i) != n || targets.shape(i) != n || mask.shape(i) != n)
            throw std::invalid_argument("the arrays must be (bptt, batch)");
        }
        return s.filler.fill(inputs.data(), targets.data(), mask.data());
      }, "inputs"_a, "targets"_a, "mask"_a)
      .def("longest", [](BoundStreams &s) {
        nb::gil_scoped_release release;
        return longest_stream(s.text(), s.batch);
      })
      .def("state", [](BoundStreams &s) {
        std::vector<uint64_t> state{s.filler.next_sentence};
        for (const auto &cursor : s.filler.cursors) {
          state.push_back(cursor.at);
          state.push_back(cursor.end);
        }
        return numpy(std::move(state));
      })
      .def("load_state", [](BoundStreams &s, Array<const uint64_t> state) {
        if (state.size() != 1 + 2 * s.batch || state(0) > s.text().sentences)
          throw std::invalid_argument("the state is of other streams");
        for (size_t i = 0; i < s.batch; ++i)
          if (state(1 + 2 * i) > state(2 + 2 * i) || state(2 + 2 * i) > s.tokens.size())
            throw std::invalid_argument("the state is of other streams");
        s.filler.next_sentence = state(0);
        for (size_t i = 0; i < s.batch; ++i)
          s.filler.cursors[i] = {state(1 + 2 * i), state(2 + 2 * i)};
      }, "state"_a);
  m.def("shuffled", [](uint64_t n, uint64_t seed, uint64_t epoch) {
    std::vector<uint32_t> order;
    {
      nb::gil_scoped_release release;
      order = shuffled(n, seed, epoch);
    }
    return numpy(std::move(order));
  }, "n"_a, "seed"_a, "epoch"_a, "A random order of 0 ... n-1.");
}

}  // namespace

void bind_text(nb::module_ &m) {
  m.attr("MAX_WORD") = kMaxWord;
  bind_checksum(m);
  bind_counter(m);
  bind_encoder(m);
  bind_streams(m);
}
