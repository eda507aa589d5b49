"""From a file of sentences to the blocks of word numbers that a network trains on.

``corpus`` reads text, ``vocab`` numbers the words, ``shards`` keeps the numbers on disk,
``streams`` cuts them into (T, B) blocks, ``prepared`` does all of it for a folder, and
``bundled`` is a small text that every Python has. Nothing here needs PyTorch.
"""
