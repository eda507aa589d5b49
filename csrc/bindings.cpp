// The native module: one bind_* function for each folder of csrc/.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_engine(nb::module_ &m);
void bind_ngram(nb::module_ &m);
void bind_text(nb::module_ &m);

NB_MODULE(_native, m) {
  m.doc() = "Native code of BlackOut.";
  bind_engine(m);
  bind_ngram(m);
  bind_text(m);
}
