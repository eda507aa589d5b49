// The binary form: a header that vouches for every byte, then the arrays of the model.
#pragma once
#include <functional>
#include <string>

#include "ngram/model.h"

namespace blackout::ngram {

using WriteBytes = std::function<void(const char *, size_t)>;

void save_model(const Model &model, const WriteBytes &write);

// A mapped file. Faults are std::invalid_argument and say what is wrong with the file.
class MappedModel {
 public:
  // With `verify` every byte is checked (about a second for ten gigabytes); without it only
  // the header is.
  MappedModel(const std::string &path, bool verify);
  ~MappedModel();
  MappedModel(const MappedModel &) = delete;
  MappedModel &operator=(const MappedModel &) = delete;

  const Model &view() const { return model_; }

 private:
  void map(const std::string &path);
  void read(bool verify);

  const char *data_ = nullptr;
  size_t size_ = 0;
  Model model_;
};

}  // namespace blackout::ngram
