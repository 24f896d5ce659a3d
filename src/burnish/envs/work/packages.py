"""Small Python packages with tests, and the mistakes that `repo` plants in them.

A mistake is a line that is replaced. Calls are expressions over the package's public names; `{}` are drawn numbers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Slip:
    """In `file` the line `good` (without its indent) reads `bad`.

    issue: what a user would report; fix: a command that puts it right, where there is a shorter one than to write the
    line anew
    """

    file: str
    good: str
    bad: str
    issue: str
    fix: str = ""


@dataclass(frozen=True)
class Package:
    """A repository: its files, the mistakes that can be planted, and calls that hidden tests make."""

    name: str
    files: tuple[tuple[str, str], ...]
    slips: tuple[Slip, ...]
    calls: tuple[str, ...]


BANK = Package(
    "bank",
    (
        ("README.md", "# bank\nAccounts and transfers. Amounts are cents.\n"),
        ("bank/__init__.py", "from bank.account import Account, Overdrawn\nfrom bank.transfer import transfer\n"),
        (
            "bank/account.py",
            '''class Overdrawn(Exception):
    """More was withdrawn than there is."""


class Account:
    """An account with a history of what came and went."""

    def __init__(self, balance=0):
        self.balance = balance
        self.history = []

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError("an amount is positive")
        self.balance += amount
        self.history.append(amount)

    def withdraw(self, amount):
        if amount > self.balance:
            raise Overdrawn(amount)
        self.balance -= amount
        self.history.append(-amount)

    def interest(self, percent):
        return self.balance * percent // 100
''',
        ),
        (
            "bank/transfer.py",
            '''def transfer(source, target, amount):
    """Move an amount; return both balances."""
    source.withdraw(amount)
    target.deposit(amount)
    return source.balance, target.balance
''',
        ),
        (
            "tests/test_bank.py",
            """import unittest

from bank import Account, Overdrawn, transfer


class TestBank(unittest.TestCase):
    def test_deposit(self):
        account = Account(5)
        account.deposit(7)
        self.assertEqual(account.balance, 12)

    def test_overdrawn(self):
        with self.assertRaises(Overdrawn):
            Account(5).withdraw(6)

    def test_transfer(self):
        self.assertEqual(transfer(Account(9), Account(1), 4), (5, 5))
""",
        ),
    ),
    (
        Slip(
            "bank/account.py",
            "if amount > self.balance:",
            "if amount >= self.balance:",
            "withdraw refuses to take the whole balance",
        ),
        Slip(
            "bank/account.py",
            "self.history.append(-amount)",
            "self.history.append(abs(amount))",
            "withdrawals stand in the history with the wrong sign",
        ),
        Slip(
            "bank/account.py",
            "return self.balance * percent // 100",
            "return self.balance // 100 * percent",
            "interest of small balances is 0",
        ),
        Slip(
            "bank/transfer.py",
            "target.deposit(amount)",
            "target.deposit(source.balance)",
            "transfer puts the wrong amount into the target",
        ),
        Slip("bank/account.py", "if amount <= 0:", "if amount < 0:", "deposit takes an amount of 0"),
    ),
    (
        "(lambda a: (a.withdraw({0}), a.balance, a.history))(Account({0}))",
        "(lambda a: (a.withdraw({0}), a.balance, a.history))(Account({0} + {1}))",
        "Account({0}).interest({1})",
        "Account(99).interest(10)",
        "transfer(Account({0} + {1}), Account(1), {1})",
        "Account(3).deposit(0)",
        "Account({0}).withdraw({0} + 1)",
    ),
)

WORDS = Package(
    "words",
    (
        ("README.md", "# words\nCount, shorten and clean words of a text.\n"),
        (
            "words/__init__.py",
            "from words.clean import clean, slug\nfrom words.count import counted, longest, most_common\n",
        ),
        (
            "words/clean.py",
            '''def clean(text):
    """The words of a text in small letters, without marks at their ends."""
    found = [word.strip(".,;:!?").lower() for word in text.split()]
    return [word for word in found if word]


def slug(text, most=20):
    """A name for a file: words joined by -, at most `most` characters, no - at the end."""
    return "-".join(clean(text))[:most].rstrip("-")
''',
        ),
        (
            "words/count.py",
            '''from words.clean import clean


def counted(text):
    """How often each word stands in a text."""
    found = {}
    for word in clean(text):
        found[word] = found.get(word, 0) + 1
    return found


def most_common(text, n=1):
    """The n most frequent words; equally frequent ones by the alphabet."""
    found = counted(text)
    return sorted(found, key=lambda word: (-found[word], word))[:n]


def longest(text):
    """The longest word; the first of several."""
    return max(clean(text), key=len, default="")
''',
        ),
        (
            "tests/test_words.py",
            """import unittest

from words import clean, counted, longest, most_common


class TestWords(unittest.TestCase):
    def test_clean(self):
        self.assertEqual(clean("A cat, a dog"), ["a", "cat", "a", "dog"])

    def test_counted(self):
        self.assertEqual(counted("a b a"), {"a": 2, "b": 1})

    def test_longest(self):
        self.assertEqual(longest("one three"), "three")

    def test_most_common(self):
        self.assertEqual(most_common("x y y"), ["y"])
""",
        ),
    ),
    (
        Slip(
            "words/clean.py",
            'found = [word.strip(".,;:!?").lower() for word in text.split()]',
            'found = [word.strip(".,;:").lower() for word in text.split()]',
            "clean leaves ! and ? at the ends of words",
        ),
        Slip(
            "words/clean.py",
            "return [word for word in found if word]",
            "return found",
            "clean gives empty words for marks that stand alone",
        ),
        Slip(
            "words/clean.py",
            'return "-".join(clean(text))[:most].rstrip("-")',
            'return "-".join(clean(text))[:most]',
            "a slug that is cut can end with -",
        ),
        Slip(
            "words/count.py",
            "return sorted(found, key=lambda word: (-found[word], word))[:n]",
            "return sorted(found, key=lambda word: -found[word])[:n]",
            "equally frequent words are not in the order of the alphabet",
        ),
        Slip(
            "words/count.py",
            'return max(clean(text), key=len, default="")',
            "return max(clean(text), key=len)",
            "longest fails for an empty text",
        ),
    ),
    (
        "clean('Oh! {0}, no?')",
        "clean('a , b {1} !')",
        "slug('one two three four', {1} % 12 + 3)",
        "slug('ab cd', 3)",
        "most_common('z y x y z w{0}', 3)",
        "longest('')",
        "longest('{0} a{0}')",
        "counted('A a {1}')",
    ),
)

SPANS = Package(
    "spans",
    (
        ("README.md", "# spans\nSpans of whole numbers: (first, last), both included.\n"),
        (
            "spans/__init__.py",
            "from spans.merge import covered, merged\nfrom spans.span import length, overlap, shifted\n",
        ),
        (
            "spans/span.py",
            '''def length(span):
    """How many numbers a span has."""
    first, last = span
    return max(0, last - first + 1)


def overlap(one, other):
    """What two spans share; None where they share nothing."""
    first, last = max(one[0], other[0]), min(one[1], other[1])
    return (first, last) if first <= last else None


def shifted(span, by):
    """A span moved by so much."""
    return span[0] + by, span[1] + by
''',
        ),
        (
            "spans/merge.py",
            '''from spans.span import length


def merged(spans):
    """Spans that touch or overlap joined, in order."""
    found = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def covered(spans):
    """How many numbers lie in any of the spans."""
    return sum(length(span) for span in merged(spans))
''',
        ),
        (
            "tests/test_spans.py",
            """import unittest

from spans import covered, length, merged, overlap


class TestSpans(unittest.TestCase):
    def test_length(self):
        self.assertEqual(length((2, 4)), 3)

    def test_overlap(self):
        self.assertEqual(overlap((1, 5), (4, 9)), (4, 5))

    def test_merged(self):
        self.assertEqual(merged([(5, 7), (1, 2)]), [(1, 2), (5, 7)])

    def test_covered(self):
        self.assertEqual(covered([(1, 3)]), 3)
""",
        ),
    ),
    (
        Slip(
            "spans/span.py",
            "return max(0, last - first + 1)",
            "return last - first + 1",
            "length of an empty span is negative",
        ),
        Slip(
            "spans/span.py",
            "return (first, last) if first <= last else None",
            "return (first, last) if first < last else None",
            "spans that share one number do not overlap",
        ),
        Slip(
            "spans/span.py",
            "return span[0] + by, span[1] + by",
            "return span[0] + by, span[1]",
            "shifted moves one end only",
        ),
        Slip(
            "spans/merge.py",
            "if found and first <= found[-1][1] + 1:",
            "if found and first <= found[-1][1]:",
            "spans that touch are not merged",
        ),
        Slip(
            "spans/merge.py",
            "found[-1] = (found[-1][0], max(found[-1][1], last))",
            "found[-1] = (found[-1][0], last)",
            "a span inside of another one cuts it off",
        ),
    ),
    (
        "length(({0}, {0} - 5))",
        "length(({0}, {0} + {1}))",
        "overlap((1, {0}), ({0}, {0} + {1}))",
        "shifted(({0}, {1}), 3)",
        "merged([(1, {0}), ({0} + 1, {0} + 4)])",
        "merged([(1, {0} + 9), (2, 3)])",
        "covered([(1, {0}), (2, {1}), ({0} + 3, {0} + 5)])",
    ),
)

PACKAGES = (BANK, WORDS, SPANS)
