"""Flat softmax layers whose tables are divided over ranks: states are exchanged, never weights.

Every rank computes the logits of all ranks' words against its own columns: its samples, or its part
of the vocabulary. What a loss needs to know of all columns goes round as a few numbers a word.
"""
