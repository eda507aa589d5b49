// Sentences laid into B streams and cut into blocks of T time steps.
//
// Each sentence goes to the currently shortest stream, the lowest-numbered of several. So while
// a block is filled, a stream that reaches the block's end gets nothing more until all have
// reached it: between blocks every stream holds at most one unfinished sentence, and its two
// ends are all there is to remember.
#pragma once
#include <cstdint>
#include <vector>

namespace blackout {

// A text of word numbers; sentence i is tokens[offsets[i]] … tokens[offsets[i + 1] - 1].
struct TokenText {
  const uint32_t *tokens;
  uint64_t size;
  const uint64_t *offsets;
  uint64_t sentences;
  const uint32_t *order;  // the sentences' order of use, or null for the text's own
};

class StreamFiller {
 public:
  StreamFiller(TokenText text, uint64_t batch, uint64_t bptt);

  // Writes the next block, row-major (T, B); gives its number of words, 0 when none are left.
  uint64_t fill(int64_t *inputs, int64_t *targets, bool *mask);

  // What a stream still holds of its sentence, in positions of `tokens`.
  struct Cursor {
    uint64_t at, end;
  };
  std::vector<Cursor> cursors;
  uint64_t next_sentence = 0;

 private:
  TokenText text_;
  uint64_t batch_, bptt_;
  std::vector<uint64_t> short_;  // streams that do not reach the block's end, as a heap
};

// Length of the longest stream when all sentences are laid out.
uint64_t longest_stream(const TokenText &text, uint64_t batch);

// A random order of 0 … n-1, the same for the same seed and epoch on every machine.
std::vector<uint32_t> shuffled(uint64_t n, uint64_t seed, uint64_t epoch);

}  // namespace blackout
