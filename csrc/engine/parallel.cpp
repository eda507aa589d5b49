#include "engine/parallel.h"

#include <dlfcn.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/threads.h"

namespace blackout {
namespace {

// ------------------------------------------------------------------ a borrowed OpenMP pool

// The entry points that a compiler would emit for `#pragma omp parallel`; both GNU's and LLVM's
// runtime have them.
struct OpenMp {
  void (*parallel)(void (*)(void *), void *, unsigned, unsigned) = nullptr;
  int (*thread_number)() = nullptr;
  int (*thread_count)() = nullptr;
  bool found() const { return parallel && thread_number && thread_count; }
};

template <class F> void find_symbol(F &function, const char *name) {
  function = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
}

const OpenMp &open_mp() {
  static const OpenMp runtime = [] {
    OpenMp found;
    const char *asked = std::getenv("BLACKOUT_POOL");
    if (asked && std::strcmp(asked, "own") == 0) return found;  // to compare the two
    find_symbol(found.parallel, "GOMP_parallel");
    find_symbol(found.thread_number, "omp_get_thread_num");
    find_symbol(found.thread_count, "omp_get_num_threads");
    return found;
  }();
  return runtime;
}

// The first exception of any thread: one that left a thread would end the process.
class Raised {
 public:
  void now() noexcept {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!first_) first_ = std::current_exception();
  }
  void again() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

struct Job {
  TaskFunction function;
  void *context;
  int tasks;
  Raised *raised;

  // Every `count`-th task from `number` on: what one of `count` threads does.
  void share(int number, int count) const noexcept {
    try {
      for (int task = number; task < tasks; task += count) function(context, task);
    } catch (...) {
      raised->now();
    }
  }
};

void open_mp_thread(void *data) {
  const OpenMp &runtime = open_mp();
  static_cast<Job *>(data)->share(runtime.thread_number(), runtime.thread_count());
}

// ------------------------------------------------------------------ threads of our own

class OwnPool {
 public:
  explicit OwnPool(int workers) : wanted_(workers), owner_(getpid()) {
    threads_ = start_threads(static_cast<size_t>(workers),
                             [this](size_t i) { work(static_cast<int>(i) + 1); });
  }

  ~OwnPool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (auto &thread : threads_) thread.join();
  }

  bool usable(int workers) const {
    return owner_ == getpid() && wanted_ == workers;
  }
  bool forked() const { return owner_ != getpid(); }

  void run(Job job) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      job_ = job;
      ++generation_;
      busy_ = static_cast<int>(threads_.size());
    }
    wake_.notify_all();
    job.share(0, count());
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  int count() const { return static_cast<int>(threads_.size()) + 1; }

  void work(int number) {
    uint64_t seen = 0;
    for (;;) {
      Job job;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
        if (stop_) return;
        seen = generation_;
        job = job_;
      }
      job.share(number, count());
      std::lock_guard<std::mutex> lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Job job_{};
  uint64_t generation_ = 0;
  int busy_ = 0;
  bool stop_ = false;
  int wanted_;  // the system may have given fewer
  pid_t owner_;
  std::vector<std::thread> threads_;
};

void run_on_own_pool(Job job, int threads) {
  static std::mutex one_at_a_time;
  static std::unique_ptr<OwnPool> pool;
  std::lock_guard<std::mutex> lock(one_at_a_time);
  if (pool && pool->forked()) (void)pool.release();  // its threads stayed behind in the parent
  if (!pool || !pool->usable(threads - 1)) {
    pool.reset();
    pool = std::make_unique<OwnPool>(threads - 1);
  }
  pool->run(job);
}

}  // namespace

const char *pool_name() { return open_mp().found() ? "openmp" : "own"; }

void run_tasks(int tasks, int threads, TaskFunction function, void *context) {
  if (tasks <= 1 || threads <= 1) {
    for (int task = 0; task < tasks; ++task) function(context, task);
    return;
  }
  Raised raised;
  Job job{function, context, tasks, &raised};
  // Always the full number of threads: GNU's runtime ends and restarts threads when it changes.
  if (open_mp().found())
    open_mp().parallel(open_mp_thread, &job, static_cast<unsigned>(threads), 0);
  else
    run_on_own_pool(job, threads);
  raised.again();
}

}  // namespace blackout
