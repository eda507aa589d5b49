// One pool of threads for the process.
//
// PyTorch's matrix products run on an OpenMP pool. A second pool beside it would spin against the
// first, so when an OpenMP runtime is already loaded its threads are borrowed; only without one
// (no PyTorch in the process) are threads of our own started. Work is divided by task number, never
// by who comes first: results do not depend on scheduling.
#pragma once

#include <cstdint>

namespace blackout {

using TaskFunction = void (*)(void *context, int task);

// Calls function(context, task) for task = 0 … tasks-1 on up to `threads` threads. An exception of
// one of them, such as memory that cannot be had, is raised here when all threads are done.
void run_tasks(int tasks, int threads, TaskFunction function, void *context);

// "openmp" when the pool is borrowed, else "own".
const char *pool_name();

template <class F> void parallel(int tasks, int threads, F &body) {
  run_tasks(
      tasks, threads, [](void *context, int task) { (*static_cast<F *>(context))(task); }, &body);
}

// Splits 0 … n-1 into one range for each thread, none smaller than `grain`: body(begin, end).
template <class F> void parallel_ranges(int64_t n, int64_t grain, int threads, F &&body) {
  if (n <= 0) return;
  int64_t most = (n + grain - 1) / grain;
  int tasks = static_cast<int>(most < threads ? most : threads);
  if (tasks < 1) tasks = 1;
  auto range = [&](int task) { body(n * task / tasks, n * (task + 1) / tasks); };
  parallel(tasks, threads, range);
}

}  // namespace blackout
