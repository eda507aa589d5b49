"""Files that are whole or not there: atomic writing, tensors with checksums, plain JSON."""
