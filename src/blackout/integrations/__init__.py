"""BlackOut inside other people's frameworks; each module needs its own extra."""
