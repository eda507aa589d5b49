"""Several models together, over one vocabulary."""
