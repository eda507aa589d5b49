// Memory for the arrays of a block, kept for the next block.
//
// Fresh memory of a hundred megabytes costs a page fault for every 4 KiB, each block again. These
// buffers go back to a list when their last user is gone, and are made of huge pages where the
// system allows it.
#pragma once

#include <cstddef>

namespace blackout {

struct Buffer {
  void *data;
  size_t bytes;
};

Buffer *take_buffer(size_t bytes);
void give_back_buffer(Buffer *buffer);
void drop_idle_buffers();

// Asks for huge pages behind a large array that is about to be filled; a hint, never an error.
void advise_huge_pages(void *data, size_t bytes);

}  // namespace blackout
