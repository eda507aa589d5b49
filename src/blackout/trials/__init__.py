"""Many training runs: several at a time, none twice; the search for settings."""
