"""What a trained model is good for: perplexity, mixing, rescoring, text."""
