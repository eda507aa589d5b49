"""Speed and memory on made-up words, beside what the machine could do at most."""
