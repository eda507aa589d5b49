"""Interpolated modified Kneser-Ney in plain Python, straight from the formulas, for small texts."""

from collections import Counter, defaultdict

UNK, BOS, EOS = "<unk>", "<s>", "</s>"


class Naive:
    """p(w | h) by recursion, without back-off weights, arrays or sorting."""

    def __init__(self, sentences, order, fallback=(0.5, 1.0, 1.5), prune=None):
        self.order = order
        prune = prune or [0] * order
        self.vocab = [UNK, BOS, EOS]
        full = []  # one n-gram for each word, padded with <s>
        for sentence in sentences:
            words = [*sentence, EOS]
            self.vocab += [w for w in dict.fromkeys(words) if w not in self.vocab]
            padded = [BOS] * (order - 1) + words
            full += [tuple(padded[i : i + order]) for i in range(len(words))]
        self.raw = [Counter(gram[order - n :] for gram in full) for n in range(1, order + 1)]
        # "<s> <s> a" is no n-gram of the model, only padding.
        self.raw = [Counter({g: c for g, c in raw.items() if BOS not in g[1:]}) for raw in self.raw]
        self.counts = [self._adjusted(n) for n in range(1, order + 1)]
        self.kept = [
            {g for g in counts if raw[g] > threshold or g in ((UNK,), (EOS,))}
            for counts, raw, threshold in zip(self.counts, self.raw, prune, strict=True)
        ]
        always = {UNK, BOS, EOS} if prune[0] else set(self.vocab)
        self.words = [w for w in self.vocab if w in always or (w,) in self.kept[0]]
        self.discounts = [self._discount(n, full, fallback) for n in range(1, order + 1)]
        self._sum_contexts()

    def _adjusted(self, n):
        if n == self.order:
            return dict(self.raw[n - 1])
        before = defaultdict(set)
        for gram in self.raw[n]:
            before[gram[1:]].add(gram[0])
        return {g: c if g[0] == BOS else len(before[g]) for g, c in self.raw[n - 1].items()}

    def _discount(self, n, full, fallback):
        counted = dict(self.counts[n - 1])
        # lmplz counts the suffixes of the very last n-gram of its sorted list by their raw
        # counts; words are sorted by their first appearance, n-grams from their last word on.
        last = max(full, key=lambda gram: [self.vocab.index(w) for w in reversed(gram)])
        suffix = last[self.order - n :]
        if n < self.order and suffix in counted:
            counted[suffix] = self.raw[n - 1][suffix]
        have = Counter(counted.values())
        if not all(have[j] for j in (1, 2, 3)):
            return fallback
        y = have[1] / (have[1] + 2 * have[2])
        amounts = tuple(j - (j + 1) * y * have[j + 1] / have[j] for j in (1, 2, 3))
        amounts = tuple(0.0 if abs(d) < 1e-9 else d for d in amounts)
        return amounts if all(0 <= d <= j for j, d in enumerate(amounts, 1)) else fallback

    def _sum_contexts(self):
        self.total, self.gamma = {}, {}
        left = defaultdict(float)
        for n, counts in enumerate(self.counts, 1):
            for gram, count in counts.items():
                context = gram[:-1]
                self.total[context] = self.total.get(context, 0) + count
                kept = gram in self.kept[n - 1]
                left[context] += self.discounts[n - 1][min(count, 3) - 1] if kept else count
        self.gamma = {context: left[context] / total for context, total in self.total.items()}

    def prob(self, word, context):
        """p(word | context) for a tuple of words; unknown ones must be <unk> already."""
        context = (
            context[len(context) - self.order + 1 :] if len(context) >= self.order else context
        )
        lower = self.prob(word, context[1:]) if context else 1 / (len(self.words) - 1)
        if context not in self.total:
            return lower
        gram = (*context, word)
        n = len(gram)
        own = 0.0
        if gram in self.kept[n - 1]:
            count = self.counts[n - 1][gram]
            own = (count - self.discounts[n - 1][min(count, 3) - 1]) / self.total[context]
        return own + self.gamma[context] * lower
