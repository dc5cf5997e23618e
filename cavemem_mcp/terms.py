"""Text → terms: what a memory can be found by. Pure; the term rules have a version that stores remember.

A term is a lower-cased maximal run of letters (L*) and decimal digits (Nd) that is not a function word. Scripts written
without spaces are cut out of the runs: Han, Kana and Hangul into overlapping pairs, Thai, Lao, Khmer and Myanmar (with
their marks) into overlapping triples; numbers written in three or more Han numerals too. Characters assigned after
Unicode 14.0 separate, so that every Python agrees.
"""

import functools
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

TERM_RULES: Final = "1"
"""Version of the rules below; a store indexed under another version is indexed anew."""

FUNCTION_WORDS: Final = frozenset(
    "a an and are as at be by for from how in is it of on or that the this to was".split()
    + "what when where which who why with".split()
)

_ASSIGNED_LATER: Final = (
    "558 58b-58c 5c8-5c9 88f 897 b53-b54 c5c cdc cf3 ece 1acf-1af0 1c89-1c8a 208f 209d-209f a7cb-a7cf "
    "a7d2 a7d4 a7da-a7dd a7e2 a7f1 ab6c-ab6d 105c0-105f3 107bb-107bf 10940-10959 10d40-10d65 10d69-10d6d "
    "10d6f-10d85 10ec2-10ec7 10ecb-10ecf 10ed9-10eee 10ef0-10eff 1123f-11241 11380-11389 1138b 1138e "
    "11390-113b5 113b7-113c0 113c2 113c5 113c7-113ca 113cc-113d3 113e1-113e2 116d0-116e3 11b0a "
    "11b60-11b67 11bc0-11be0 11bf0-11bf9 11db0-11ddb 11de0-11de9 11df0-11df1 11f00-11f10 11f12-11f3a "
    "11f3e-11f42 11f50-11f5a 1342f 13440-13455 13460-143fa 16100-16139 16d40-16d6c 16d70-16d79 "
    "16ea0-16eb8 16ebb-16ed3 16ff2-16ff3 187f8-187ff 18cd6-18cda 18cff 18d09-18d20 18d80-18df2 "
    "18e00-19191 191a0-191d2 1b123-1b128 1b132 1b155 1b168 1ccf0-1ccf9 1d127-1d128 1d250-1d252 "
    "1d25b-1d25c 1d25f 1d280-1d281 1d6a6 1df1f-1df81 1df90-1df96 1dfcd-1dfff 1e030-1e06d 1e08f "
    "1e4d0-1e4f9 1e5d0-1e5fa 1e6c0-1e6de 1e6e0-1e6f5 1e6fe-1e6ff 2b739-2b73f 2b81e 2cea2-2cead "
    "2ebf0-2ee5d 31350-33479 3d000-3fc3f"
)
"""Letters, marks and decimal digits of Unicode 15.0 to 18.0, in hex: inclusive ranges that Unicode 14.0 leaves free."""

_PAIRS: Final = (
    "\u1100-\u11ff\u2e80-\u2fd5\u3005\u3031-\u3035\u303b-\u303c\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3131-\u318e\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb\uf900-\ufaff\uff66-\uff9f"
    "\uffa0-\uffdc\U0001aff0-\U0001afff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
"""Han, Hiragana, Katakana, Hangul, as ranges of a regular expression's character class."""
_TRIPLES: Final = (
    "\u0e01-\u0e4f\u0e5a-\u0ecf\u0eda-\u0eff\u1000-\u103f\u104a-\u108f\u109a-\u109f\u1780-\u17df\u17ea-\u17ff"
    "\ua9e0-\ua9ef\ua9fa-\ua9ff\uaa60-\uaa7f"
)
"""Thai, Lao, Khmer, Myanmar without their digits, which are found like all digits: as whole numbers."""

_HAN_NUMERALS: Final = "一二三四五六七八九十百千万萬億亿兆零两兩"

_ASCII: Final = bytes(ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else ord(" ") for byte in range(256))


class DocumentTerms(NamedTuple):
    """What the index keeps of one text: how often each term occurs, and how many runs there are."""

    frequencies: dict[str, int]
    length: int


def document_terms(text: str) -> DocumentTerms:
    """Return a memory's terms with their frequencies, and its length in runs (a run counts once, however it is cut)."""
    frequencies: dict[str, int] = {}
    length = 0
    for run in _runs(text):
        length += 1
        for term in _pieces(run, single_characters=True):
            frequencies[term] = frequencies.get(term, 0) + 1
    return DocumentTerms(frequencies, length)


def query_terms(text: str) -> tuple[str, ...]:
    """Return a query's distinct terms in order of first occurrence."""
    return tuple(dict.fromkeys(term for run in _runs(text) for term in _pieces(run, single_characters=False)))


def _runs(text: str) -> Iterator[str]:
    """Yield lower-cased runs without function words; each is of one kind (spaced, pair-wise or triple-wise script)."""
    if text.isascii():
        for word in text.encode("ascii").translate(_ASCII).decode("ascii").split():
            if word not in FUNCTION_WORDS:
                yield word
        return
    for word in text.translate(_CHARACTERS).split(" "):
        if word.isascii():
            if word and word not in FUNCTION_WORDS:
                yield word
        else:
            yield from (run for run in _unspaced().split(word) if run and run not in FUNCTION_WORDS)


def _pieces(run: str, *, single_characters: bool) -> Iterator[str]:
    """Yield the terms of one run."""
    if run.isascii() or (matched := _unspaced().match(run)) is None:
        yield run
    elif matched.lastgroup == "triples":
        yield from _triples(run)
    elif len(run) == 1:
        yield run
    elif not single_characters and _numbers().fullmatch(run):
        yield from _triples(run)
    else:
        yield from (run[at : at + 2] for at in range(len(run) - 1))
        if single_characters:
            yield from run
            for number in _numbers().findall(run):
                yield from _triples(number)


def _triples(run: str) -> Iterator[str]:
    return (run[at : at + 3] for at in range(max(len(run) - 2, 1)))


class _Characters(dict[int, str]):
    """Table for `str.translate`: a word character to its lower case, any other to a space; filled on first sight."""

    def __missing__(self, point: int) -> str:
        folded = _folded(chr(point))
        if folded != " " or point < 0x10000:  # bounds the table by the word characters there are
            self[point] = folded
        return folded


def _folded(character: str) -> str:
    """Return the lower case (simple mapping) of a word character, and a space for any other."""
    if _is_assigned_later(ord(character)):
        return " "
    if character.isalpha() or character.isdecimal():
        return "i" if character == "\u0130" else character.lower()
    if unicodedata.category(character).startswith("M") and _unspaced().match(character):
        return character
    return " "


def _is_assigned_later(point: int) -> bool:
    starts, ends = _later_ranges()
    at = bisect_right(starts, point) - 1
    return at >= 0 and point <= ends[at]


@functools.cache
def _later_ranges() -> tuple[list[int], list[int]]:
    ranges = [entry.partition("-") for entry in _ASSIGNED_LATER.split()]
    return [int(start, 16) for start, _, _ in ranges], [int(end or start, 16) for start, _, end in ranges]


@functools.cache
def _unspaced() -> re.Pattern[str]:
    return re.compile(f"(?P<pairs>[{_PAIRS}]+)|(?P<triples>[{_TRIPLES}]+)")


@functools.cache
def _numbers() -> re.Pattern[str]:
    return re.compile(f"[{_HAN_NUMERALS}]{{3,}}")  # two numerals are a pair anyway


_CHARACTERS: Final = _Characters()
