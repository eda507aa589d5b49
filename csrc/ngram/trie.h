// From the n-grams of a file, in whatever order they came, to the arrays of a model.
#pragma once
#include <memory>
#include <stdexcept>
#include <vector>

#include "ngram/model_data.h"

namespace blackout::ngram {

// The same n-gram twice; `words` are its words, separated by spaces.
struct Duplicate : std::runtime_error {
  Duplicate(size_t order, std::string words)
      : std::runtime_error("duplicate " + std::to_string(order) + "-gram " + words),
        order(order),
        words(std::move(words)) {}
  size_t order;
  std::string words;
};

// The n-grams of one order from 2 on.
class Level {
 public:
  virtual ~Level() = default;
  virtual void add(const Id *words, float prob, float backoff) = 0;
  virtual void sort() = 0;
  virtual size_t size() const = 0;
  virtual const Id *words(size_t i) const = 0;
  virtual float prob(size_t i) const = 0;
  virtual float backoff(size_t i) const = 0;
};

// `expected` n-grams will come, or so the file says.
std::unique_ptr<Level> make_level(size_t order, uint64_t expected);

// `levels` are orders 2, 3, ...; level 1 is already in `data` (without sentinel). A context that
// the file lacks is added with the probability that backing off gives it, so that answers stay
// those of the file.
void build_trie(std::vector<std::unique_ptr<Level>> levels, ModelData &data);

}  // namespace blackout::ngram
