"""N-best lists of a recogniser: read, scored, put in order, written."""
