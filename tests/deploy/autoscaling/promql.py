"""As much of PromQL as deploy/prometheus/autoscaling.yaml is written in, and the
evaluation of its rules, as Prometheus documents them. What is not known raises.

A vector is a dictionary from labels (a frozenset of pairs) to a number.
"""

import operator
import re

TOKEN = re.compile(
    r"\s*(?:#[^\n]*\n\s*)*"
    r"(?P<token>\d+(?:\.\d+)?|[a-zA-Z_:][a-zA-Z0-9_:]*|\"[^\"]*\"|[-+*/(){}\[\],=<>])"
)
ARITHMETIC = [
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": operator.truediv},
]
COMPARISONS = {">": operator.gt, "<": operator.lt}
NO_LABELS = frozenset()


class Series:
    """Samples of every name and label set, by time."""

    def __init__(self):
        self.samples = {}  # (name, labels) -> [(time, value)]

    def add(self, name, labels, time, value):
        self.samples.setdefault((name, labels), []).append((time, value))

    def select(self, name, matchers):
        wanted = set(matchers)
        return {
            labels: samples
            for (of, labels), samples in self.samples.items()
            if of == name and wanted <= labels
        }

    def latest(self, name, matchers, now):
        """A series that the last scrape did not have is stale."""
        return {
            labels: samples[-1][1]
            for labels, samples in self.select(name, matchers).items()
            if samples[-1][0] == now
        }

    def rate(self, name, matchers, window, now):
        rates = {}
        for labels, samples in self.select(name, matchers).items():
            inside = [s for s in samples if now - window < s[0] <= now]
            if len(inside) >= 2:
                rates[labels] = rate_of(inside, now - window, now, window)
        return rates


def rate_of(samples, start, end, window):
    """Prometheus' extrapolation: to the ends of the window, unless the series
    begins or ends inside of it, then by half a distance of samples."""
    (first_at, first), (last_at, last) = samples[0], samples[-1]
    increase = last - first
    for (_, before), (_, after) in zip(samples, samples[1:]):
        if after < before:
            increase += before
    sampled = last_at - first_at
    apart = sampled / (len(samples) - 1)
    to_start, to_end = first_at - start, end - last_at
    if increase > 0 and first >= 0:
        to_start = min(to_start, sampled * (first / increase))
    covered = sampled
    for gap in (to_start, to_end):
        covered += gap if gap < 1.1 * apart else apart / 2
    return increase * (covered / sampled) / window


class Parser:
    """Evaluates an expression while it reads it."""

    def __init__(self, text, series, now):
        self.tokens = []
        at = 0
        text = text.strip()
        while at < len(text):
            match = TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"not known: {text[at:]!r}")
            self.tokens.append(match["token"])
            at = match.end()
        self.series, self.now = series, now

    def next(self, *expected):
        token = self.tokens.pop(0)
        if expected and token not in expected:
            raise ValueError(f"{token!r} where one of {expected} is due")
        return token

    def peek(self):
        return self.tokens[0] if self.tokens else None

    def value(self):
        result = self.union()
        if self.tokens:
            raise ValueError(f"not known: {self.tokens}")
        return result

    def union(self):
        left = self.intersection()
        while self.peek() == "or":
            self.next()
            left = {**self.intersection(), **left}
        return left

    def intersection(self):
        left = self.comparison()
        while self.peek() == "and":
            self.next()
            for token in ("on", "(", ")"):
                self.next(token)
            left = left if self.comparison() else {}
        return left

    def comparison(self):
        left = self.arithmetic(0)
        while self.peek() in COMPARISONS:
            holds = COMPARISONS[self.next()]
            right = self.arithmetic(0)
            left = {
                labels: value
                for labels, value in left.items()
                if is_number(right)
                and holds(value, right)
                or not is_number(right)
                and labels in right
                and holds(value, right[labels])
            }
        return left

    def arithmetic(self, level):
        if level == len(ARITHMETIC):
            return self.operand()
        left = self.arithmetic(level + 1)
        while self.peek() in ARITHMETIC[level]:
            apply = ARITHMETIC[level][self.next()]
            left = combine(apply, left, self.arithmetic(level + 1))
        return left

    def operand(self):
        token = self.next()
        if token == "(":
            result = self.union()
            self.next(")")
            return result
        if token[0].isdigit():
            return float(token)
        if token in ("sum", "max"):
            return self.aggregate(sum if token == "sum" else max)
        if token == "rate":
            self.next("(")
            name, matchers = self.next(), self.matchers()
            window = self.window()
            self.next(")")
            return self.series.rate(name, matchers, window, self.now)
        if token == "clamp_max":
            self.next("(")
            vector = self.union()
            self.next(",")
            most = float(self.next())
            self.next(")")
            return {labels: min(value, most) for labels, value in vector.items()}
        return self.series.latest(token, self.matchers(), self.now)

    def aggregate(self, whole):
        kept = []
        if self.peek() == "by":
            self.next()
            self.next("(")
            kept.append(self.next())
            while self.next(",", ")") == ",":
                kept.append(self.next())
        self.next("(")
        groups = {}
        for labels, value in self.union().items():
            group = frozenset(pair for pair in labels if pair[0] in kept)
            groups.setdefault(group, []).append(value)
        self.next(")")
        return {group: whole(values) for group, values in groups.items()}

    def matchers(self):
        found = []
        if self.peek() != "{":
            return found
        while self.next("{", ",") and self.peek() != "}":
            label = self.next()
            self.next("=")
            found.append((label, self.next().strip('"')))
            if self.peek() == "}":
                break
        self.next("}")
        return found

    def window(self):
        self.next("[")
        number, unit = float(self.next()), self.next("m", "s")
        self.next("]")
        return number * (60 if unit == "m" else 1)


def is_number(value):
    return isinstance(value, float)


def combine(apply, left, right):
    if is_number(left) and is_number(right):
        return apply(left, right)
    if is_number(right):
        return {labels: apply(value, right) for labels, value in left.items()}
    if is_number(left):
        return {labels: apply(left, value) for labels, value in right.items()}
    return {
        labels: apply(value, right[labels])
        for labels, value in left.items()
        if labels in right
    }


def evaluate(text, series, now):
    return Parser(text, series, now).value()


def record(rules, series, now):
    """One evaluation of a group: each rule sees what those before it recorded."""
    for rule in rules:
        for labels, value in evaluate(rule["expr"], series, now).items():
            series.add(rule["record"], labels, now, value)
