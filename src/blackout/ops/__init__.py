"""The arithmetic: each operation as plain PyTorch, the truth; where it pays, as native code."""
