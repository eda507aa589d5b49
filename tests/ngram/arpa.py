"""A plain reader of well-formed ARPA text, to check the fast one against."""


def read_arpa(path):
    """For each order a dict from the words to (log10 probability, log10 back-off weight)."""
    levels = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.endswith("-grams:"):
            levels.append({})
        elif levels and "\t" in line:
            prob, words, *backoff = line.split("\t")
            value = float(prob), float(backoff[0]) if backoff else 0.0
            assert tuple(words.split(" ")) not in levels[-1]
            levels[-1][tuple(words.split(" "))] = value
    return levels
