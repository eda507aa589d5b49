// The native module: one bind_* function for each folder of csrc/.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_engine(nb::module_ &m);
void bind_products(nb::module_ &m);
void bind_cells(nb::module_ &m);
void bind_paths(nb::module_ &m);
void bind_windows(nb::module_ &m);
void bind_step(nb::module_ &m);
void bind_ngram(nb::module_ &m);
void bind_text(nb::module_ &m);

NB_MODULE(_native, m) {
  m.doc() = "Native code of BlackOut.";
  bind_engine(m);
  bind_products(m);
  bind_cells(m);
  bind_paths(m);
  bind_windows(m);
  bind_step(m);
  bind_ngram(m);
  bind_text(m);
}
