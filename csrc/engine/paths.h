// The paths of a block's words through a tree, and the gradients of the nodes on them.
#pragma once

#include "engine/kernels.h"

namespace blackout {

struct PathSizes {
  i64 steps, entries, longest;  // choices and vectors of all paths; vectors of the longest one
};

// Where the choices and the vectors of each word begin, (n + 1,) each; either may be null.
PathSizes measure_paths(const TreeArrays &tree, const i64 *target, i64 n, i64 *step_start,
                        i64 *entry_start);

// J of n words and, where `derivative` is asked for, what their gradients need.
void run_paths(const PathArgs &args, i64 n, int threads);

// The vectors of nodes (ascending): their numbers, and where each node's begin (distinct + 1,).
// Either may be null; returns how many there are.
i64 rows_of_nodes(const TreeArrays &tree, const i64 *nodes, i64 distinct, i64 *row_start, i64 *rows);

// The gradients of these vectors.
void run_path_rows(const PathRowArgs &args, i64 distinct, int threads);

}  // namespace blackout
