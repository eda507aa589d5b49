/* Between a program and its system, by LD_PRELOAD: the n-th operation on the disk, or the n-th large
 * piece of memory, goes wrong. Nothing does until arm_disk or arm_memory is called (system.py).
 *
 * Operations: write, pwrite and writev to regular files, fsync, fdatasync, ftruncate, rename,
 * unlink, mkdir, and open for writing. Native code and Python go through here alike. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum Fault {
  kNone,
  kFails, /* an error, and nothing was done */
  kFull,  /* half of a write, and from then on no room for any other */
  kShort, /* half of a write, as systems may: the rest has to be written again */
  kDies   /* half of a write, and then kill -9 */
};

static _Atomic int disk_fault = kNone, is_full, memory_from_then_on;
static _Atomic long disk_left, memory_left, disk_seen, memory_seen;
static _Atomic size_t large = SIZE_MAX;

void arm_disk(long n, int fault) {
  disk_left = n;
  disk_seen = 0;
  is_full = 0;
  disk_fault = fault;
}

void arm_memory(long n, size_t least, int from_then_on) {
  memory_left = n;
  memory_seen = 0;
  memory_from_then_on = from_then_on;
  large = least;
}

void disarm(void) {
  disk_fault = kNone;
  large = SIZE_MAX;
  is_full = 0;
}

long seen_on_disk(void) { return disk_seen; }
long seen_in_memory(void) { return memory_seen; }

#define REAL(name) __typeof__(name) *real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* ------------------------------------------------------------------ the disk */

static int is_file(int fd) {
  struct stat about;
  return fd > 2 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
}

static int is_nth(void) {
  ++disk_seen;
  return --disk_left == 0;
}

/* What is no write: whether it fails here. */
static int goes_wrong(void) {
  if (disk_fault != kFails && disk_fault != kDies) return 0;
  if (!is_nth()) return 0;
  if (disk_fault == kDies) kill(getpid(), SIGKILL);
  errno = EIO;
  return 1;
}

/* Of a write of so many bytes: how many come to be written, -1 for none and an error. */
static ssize_t let_through(int fd, size_t bytes, int *dies) {
  *dies = 0;
  if (disk_fault == kNone || !is_file(fd)) return (ssize_t)bytes;
  if (is_full) {
    errno = ENOSPC;
    return -1;
  }
  if (!is_nth()) return (ssize_t)bytes;
  switch (disk_fault) {
    case kFails:
      errno = EIO;
      return -1;
    case kFull:
      is_full = 1;
      if (bytes < 2) {
        errno = ENOSPC;
        return -1;
      }
      break;
    case kDies:
      *dies = 1;
      break;
  }
  return bytes < 2 ? (ssize_t)bytes : (ssize_t)(bytes / 2);
}

#define WRITING(bytes, call)                      \
  int dies;                                       \
  const ssize_t some = let_through(fd, bytes, &dies); \
  if (some < 0) return -1;                        \
  const ssize_t done = (call);                    \
  if (dies) kill(getpid(), SIGKILL);              \
  return done

ssize_t write(int fd, const void *data, size_t size) {
  REAL(write);
  WRITING(size, real(fd, data, (size_t)some));
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  REAL(pwrite);
  WRITING(size, real(fd, data, (size_t)some, at));
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  REAL(pwrite64);
  WRITING(size, real(fd, data, (size_t)some, at));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
  REAL(writev);
  /* one part of several is a short write already */
  const int fewer = count > 1 ? count / 2 : count;
  WRITING((size_t)count, some == count ? real(fd, parts, count) : real(fd, parts, fewer));
}

int fsync(int fd) {
  REAL(fsync);
  return goes_wrong() ? -1 : real(fd);
}

int fdatasync(int fd) {
  REAL(fdatasync);
  return goes_wrong() ? -1 : real(fd);
}

int ftruncate(int fd, off_t size) {
  REAL(ftruncate);
  return goes_wrong() ? -1 : real(fd, size);
}

int ftruncate64(int fd, off64_t size) {
  REAL(ftruncate64);
  return goes_wrong() ? -1 : real(fd, size);
}

int rename(const char *from, const char *to) {
  REAL(rename);
  return goes_wrong() ? -1 : real(from, to);
}

int renameat(int a, const char *from, int b, const char *to) {
  REAL(renameat);
  return goes_wrong() ? -1 : real(a, from, b, to);
}

int unlink(const char *path) {
  REAL(unlink);
  return goes_wrong() ? -1 : real(path);
}

int unlinkat(int at, const char *path, int flags) {
  REAL(unlinkat);
  return goes_wrong() ? -1 : real(at, path, flags);
}

int rmdir(const char *path) {
  REAL(rmdir);
  return goes_wrong() ? -1 : real(path);
}

int link(const char *from, const char *to) {
  REAL(link);
  return goes_wrong() ? -1 : real(from, to);
}

int mkdir(const char *path, mode_t mode) {
  REAL(mkdir);
  return goes_wrong() ? -1 : real(path, mode);
}

int mkstemp(char *pattern) {
  REAL(mkstemp);
  return goes_wrong() ? -1 : real(pattern);
}

static int changes(const char *path, int flags) {
  const int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC));
  return writes && strncmp(path, "/dev/", 5) && strncmp(path, "/proc/", 6);
}

#define OPENING(call)                                 \
  mode_t mode = 0;                                    \
  if (flags & (O_CREAT | __O_TMPFILE)) {              \
    va_list rest;                                     \
    va_start(rest, flags);                            \
    mode = va_arg(rest, mode_t);                      \
    va_end(rest);                                     \
  }                                                   \
  if (changes(path, flags) && goes_wrong()) return -1; \
  return (call)

int open(const char *path, int flags, ...) {
  REAL(open);
  OPENING(real(path, flags, mode));
}

int open64(const char *path, int flags, ...) {
  REAL(open64);
  OPENING(real(path, flags, mode));
}

int openat(int at, const char *path, int flags, ...) {
  REAL(openat);
  OPENING(real(at, path, flags, mode));
}

int openat64(int at, const char *path, int flags, ...) {
  REAL(openat64);
  OPENING(real(at, path, flags, mode));
}

/* ------------------------------------------------------------------ memory */

/* glibc's own, under the names that it keeps for those who stand before it */
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static int cannot_be_had(size_t size) {
  if (size < large) return 0;
  ++memory_seen;
  const long left = --memory_left;
  if (left > 0 || (left < 0 && !memory_from_then_on)) return 0;
  errno = ENOMEM;
  return 1;
}

void *malloc(size_t size) { return cannot_be_had(size) ? NULL : __libc_malloc(size); }

void *calloc(size_t count, size_t size) {
  const size_t bytes = size && count > SIZE_MAX / size ? SIZE_MAX - 1 : count * size;
  return cannot_be_had(bytes) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
  return cannot_be_had(size) ? NULL : __libc_realloc(old, size);
}

void *memalign(size_t unit, size_t size) {
  return cannot_be_had(size) ? NULL : __libc_memalign(unit, size);
}

void *aligned_alloc(size_t unit, size_t size) { return memalign(unit, size); }

int posix_memalign(void **place, size_t unit, size_t size) {
  void *found = memalign(unit, size);
  if (!found) return ENOMEM;
  *place = found;
  return 0;
}

void *mmap(void *where, size_t size, int protection, int flags, int fd, off_t at) {
  REAL(mmap);
  return cannot_be_had(size) ? MAP_FAILED : real(where, size, protection, flags, fd, at);
}

void *mmap64(void *where, size_t size, int protection, int flags, int fd, off64_t at) {
  REAL(mmap64);
  return cannot_be_had(size) ? MAP_FAILED : real(where, size, protection, flags, fd, at);
}
