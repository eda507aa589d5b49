#include "ngram/temp_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace blackout::ngram {

TempFile::~TempFile() {
  if (fd_ >= 0) ::close(fd_);
}

void TempFile::fail(const char *doing) const {
  throw std::runtime_error("temporary folder " + folder_ + ": cannot " + doing + ": " +
                           std::strerror(errno));
}

void TempFile::open() {
#ifdef O_TMPFILE
  // It never has a name: nothing is left of it, whenever this process dies.
  fd_ = ::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd_ >= 0) return;
#endif
  const std::string pattern = folder_ + "/blackout-XXXXXX";
  std::vector<char> path(pattern.begin(), pattern.end());
  path.push_back('\0');
  fd_ = ::mkstemp(path.data());
  if (fd_ < 0) fail("create a file");
  ::unlink(path.data());
}

void TempFile::append(const void *data, size_t bytes) {
  if (fd_ < 0) open();
  const char *p = static_cast<const char *>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd_, p, bytes, static_cast<off_t>(size_));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("write");
    p += n;
    bytes -= static_cast<size_t>(n);
    size_ += static_cast<uint64_t>(n);
  }
}

void TempFile::read(uint64_t offset, void *data, size_t bytes) const {
  char *p = static_cast<char *>(data);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd_, p, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("read back");
    p += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
}

}  // namespace blackout::ngram
