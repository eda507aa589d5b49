// Python's view of the n-gram code.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>

#include "ngram/arpa.h"
#include "ngram/estimate.h"
#include "ngram/evaluator.h"
#include "ngram/model_file.h"
#include "ngram/score_text.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace blackout::ngram;

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Each call looks for Ctrl-C; the Python function itself is called a few times a second.
Progress python_progress(nb::object callback) {
  auto last = std::chrono::steady_clock::now() - std::chrono::hours(1);
  return [callback, last](const std::string &stage, uint64_t done, uint64_t total) mutable {
    const auto now = std::chrono::steady_clock::now();
    if (done > 0 && now - last < std::chrono::milliseconds(100)) return;
    last = now;
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!callback.is_none()) callback(stage, done, total);
  };
}

Write python_write(nb::object callback) {
  return [callback](const char *data, size_t size) {
    nb::gil_scoped_acquire gil;
    callback(nb::bytes(data, size));
  };
}

nb::dict run_estimate(Estimator &self, nb::object write, nb::object progress) {
  Write write_bytes = python_write(write);
  Progress report = python_progress(progress);
  Estimate estimate;
  {
    nb::gil_scoped_release release;
    estimate = self.estimate(write_bytes, report);
  }
  nb::list discounts;
  for (const Discount &d : estimate.discounts)
    discounts.append(nb::make_tuple(d.amount[1], d.amount[2], d.amount[3]));
  nb::dict result;
  result["ngrams"] = nb::cast(estimate.ngrams);
  result["discounts"] = discounts;
  result["failed"] = nb::cast(estimate.failed);
  return result;
}

void bind_estimator(nb::module_ &m) {
  nb::class_<Estimator>(m, "NGramEstimator")
      .def(
          "__init__",
          [](Estimator *self, int order, size_t memory, size_t threads, std::string folder,
             std::vector<uint64_t> prune, std::optional<std::array<double, 3>> fallback,
             bool keep_empty, bool skip_markers, bool replace_invalid) {
            Settings s;
            s.order = order;
            s.memory = memory;
            s.threads = threads;
            s.folder = std::move(folder);
            s.prune = std::move(prune);
            s.fallback = fallback;
            s.text.keep_empty = keep_empty;
            s.text.skip_markers = skip_markers;
            s.text.replace_invalid = replace_invalid;
            new (self) Estimator(s);
          },
          nb::kw_only(), "order"_a, "memory"_a, "threads"_a, "folder"_a, "prune"_a,
          "fallback"_a.none(), "keep_empty"_a, "skip_markers"_a, "replace_invalid"_a)
      .def("announce", [](Estimator &self, nb::bytes word) {
        self.announce({static_cast<const char *>(word.data()), word.size()});
      })
      .def("feed",
           [](Estimator &self, Bytes data, bool last) {
             nb::gil_scoped_release release;
             return self.feed(data.data(), data.size(), last);
           })
      .def("next_file", &Estimator::next_file)
      .def("estimate", &run_estimate, "write"_a, "progress"_a.none())
      .def_prop_ro("tokens", &Estimator::tokens)
      .def_prop_ro("sentences", &Estimator::sentences)
      .def_prop_ro("types", &Estimator::types);
}

// A model and whatever holds its arrays.
struct Holder {
  explicit Holder(ModelData &&d) : data(std::make_unique<ModelData>(std::move(d))) {
    model = data->view();
  }
  Holder(const std::string &path, bool verify)
      : mapped(std::make_unique<MappedModel>(path, verify)) {
    model = mapped->view();
  }
  std::unique_ptr<ModelData> data;
  std::unique_ptr<MappedModel> mapped;
  Model model;
};

using Ids = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::ndarray<nb::numpy, float> numpy(std::vector<float> &&values) {
  auto *kept = new std::vector<float>(std::move(values));
  nb::capsule owner(kept, [](void *p) noexcept { delete static_cast<std::vector<float> *>(p); });
  return nb::ndarray<nb::numpy, float>(kept->data(), {kept->size()}, owner);
}

void check_ids(const Model &model, const Ids &ids) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids.data()[i] >= model.words)
      throw nb::index_error("a word id is not below the size of the vocabulary");
}

std::vector<float> score_sentence(const Model &model, const Ids &ids, bool bos) {
  std::vector<float> scores(ids.size());
  State state = bos ? model.begin() : model.empty();
  for (size_t i = 0; i < ids.size(); ++i) scores[i] = model.score(state, ids.data()[i]);
  return scores;
}

std::vector<float> score_all(const Model &model, const Ids &context, bool bos) {
  State state = bos ? model.begin() : model.empty();
  for (size_t i = 0; i < context.size(); ++i) model.score(state, context.data()[i]);
  std::vector<float> scores(model.words);
  for (Id id = 0; id < model.words; ++id) {
    if (id == model.bos) {  // never predicted
      scores[id] = kLogZero;
      continue;
    }
    State copy = state;
    scores[id] = model.score(copy, id);
  }
  return scores;
}

nb::object optional_id(Id id) { return id == kNone ? nb::none() : nb::cast(id); }

void bind_model(nb::module_ &m) {
  nb::class_<Holder>(m, "NGramModel", "A back-off model to ask for probabilities.")
      .def_static("open", [](nb::bytes name, bool verify) {
        const std::string path(name.c_str(), name.size());  // a name need not be UTF-8
        nb::gil_scoped_release release;
        return std::make_unique<Holder>(path, verify);
      }, "path"_a, "verify"_a)
      .def("save", [](const Holder &h, nb::object write) {
        WriteBytes write_bytes = python_write(write);
        nb::gil_scoped_release release;
        save_model(h.model, write_bytes);
      }, "write"_a)
      .def_prop_ro("order", [](const Holder &h) { return h.model.order; })
      .def_prop_ro("counts", [](const Holder &h) {
        return std::vector<uint64_t>(h.model.counts.begin(),
                                     h.model.counts.begin() + static_cast<long>(h.model.order));
      })
      .def_prop_ro("unk", [](const Holder &h) { return h.model.unk; })
      .def_prop_ro("bos", [](const Holder &h) { return optional_id(h.model.bos); })
      .def_prop_ro("eos", [](const Holder &h) { return h.model.eos; })
      .def("find", [](const Holder &h, nb::bytes word) {
        return optional_id(h.model.find({word.c_str(), word.size()}));
      }, "word"_a)
      .def("words", [](const Holder &h) {
        nb::list words;
        for (Id id = 0; id < h.model.words; ++id)
          words.append(nb::str(h.model.word(id).data(), h.model.word(id).size()));
        return words;
      })
      .def("score", [](const Holder &h, Ids ids, bool bos) {
        check_ids(h.model, ids);
        return numpy(score_sentence(h.model, ids, bos));
      }, "ids"_a, nb::kw_only(), "bos"_a)
      .def("score_text", [](const Holder &h, Ids ids) {
        std::vector<float> scores(ids.size());
        {
          nb::gil_scoped_release release;
          check_ids(h.model, ids);
          State state = h.model.begin();
          score_text(h.model, ids.data(), ids.size(), state, scores.data());
        }
        return numpy(std::move(scores));
      }, "ids"_a)
      .def("score_all", [](const Holder &h, Ids context, bool bos) {
        check_ids(h.model, context);
        return numpy(score_all(h.model, context, bos));
      }, "context"_a, nb::kw_only(), "bos"_a);

  nb::class_<ArpaReader>(m, "ArpaReader", "Reads ARPA text buffer by buffer.")
      .def(nb::init<>())
      .def("feed", [](ArpaReader &r, Bytes data, bool last) {
        nb::gil_scoped_release release;
        return r.feed(data.data(), data.size(), last);
      }, "data"_a, "last"_a)
      .def("take", [](ArpaReader &r) -> nb::object {
        std::unique_ptr<Holder> holder;
        try {
          nb::gil_scoped_release release;
          holder = std::make_unique<Holder>(r.take());
        } catch (const Duplicate &d) {
          return nb::make_tuple(d.order, d.words);
        }
        return nb::cast(std::move(holder));
      }, "The model, or (order, words) of an n-gram that stands in the file twice.");
}

void bind_evaluator(nb::module_ &m) {
  nb::class_<Evaluator>(m, "NGramEvaluator", "Sums up the log-probabilities of a text.")
      .def("__init__", [](Evaluator *self, const Holder &h, bool keep_empty, bool skip_markers,
                          bool replace_invalid, size_t threads, bool dump) {
        blackout::TextOptions options{keep_empty, skip_markers, replace_invalid};
        new (self) Evaluator(h.model, options, threads, dump);
      }, "model"_a, nb::kw_only(), "keep_empty"_a, "skip_markers"_a, "replace_invalid"_a,
         "threads"_a, "dump"_a, nb::keep_alive<1, 2>())
      .def("feed", [](Evaluator &e, Bytes data, bool last) {
        nb::gil_scoped_release release;
        return e.feed(data.data(), data.size(), last);
      }, "data"_a, "last"_a)
      .def("take_lines", [](Evaluator &e) {
        nb::bytes lines(e.lines.data(), e.lines.size());
        e.lines.clear();
        return lines;
      })
      .def("totals", [](const Evaluator &e) {
        const Totals &t = e.totals();
        return nb::make_tuple(t.words, t.sentences, t.unknown, t.log10, t.log10_unknown);
      });
}

}  // namespace

void bind_ngram(nb::module_ &m) {
  bind_estimator(m);
  bind_model(m);
  bind_evaluator(m);
}
