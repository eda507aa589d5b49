"""A trained model on texts: perplexity, probabilities, generated words."""
