"""Recall against other ways to find the same: `python -m tests.bench.bench_recall [--million] [SIZE ...]`.

The memories are about 30 words each, drawn from a vocabulary with Zipf's exponent 1.07. One number is one query, from
its text to ids and scores of the best five, in its own read transaction, everything warm.
"""

import argparse
import contextlib
import importlib
import itertools
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from cavemem_mcp import bm25, terms
from cavemem_mcp.model import SCORE_THRESHOLD, Memory, memory_id, timestamp
from cavemem_mcp.store import Transaction, files
from cavemem_mcp.store.sqlite import FILE_NAME, SqliteStore
from tests import bm25_oracle
from tests.bench import harness

SIZES: Final = (1_000, 10_000, 100_000)
LIMIT: Final = 5
BATCH: Final = 1000
SINGLES: Final = 100
"""Memories that are written last, one at a time, as memories arrive in use; the others come in batches."""
VOCABULARY: Final = 50_000
EXPONENT: Final = 1.07
NAIVE_QUERIES_MAX: Final = 3
"""Queries of a family that the naive way answers; one where there are more memories than `NAIVE_SIZE_MAX`."""
NAIVE_SIZE_MAX: Final = 10_000
WAYS: Final = ("recall", "FTS5", "FTS5, merged", "naive", "tantivy", "bm25s")

Way = Callable[[str], list[tuple[str, float]]]


class Corpus:
    """Seeded texts and queries; the same for the same size."""

    def __init__(self, size: int) -> None:
        self._random = random.Random(size)
        self._words = [f"w{number}" for number in range(VOCABULARY)]
        self._weights = list(itertools.accumulate((number + 1) ** -EXPONENT for number in range(VOCABULARY)))
        self.texts = [self._text(number) for number in range(size)]
        self._frequencies: dict[str, int] = {}
        for text in self.texts:
            for word in set(text.split()):
                self._frequencies[word] = self._frequencies.get(word, 0) + 1

    def _text(self, number: int) -> str:
        words = self._draw(max(5, round(self._random.gauss(30, 8))))
        return f"{' '.join(words)} n{number}"

    def _draw(self, count: int) -> list[str]:
        return self._random.choices(self._words, cum_weights=self._weights, k=count)

    def _between(self, least: float, most: float) -> list[str]:
        size = len(self.texts)
        return sorted(word for word, df in self._frequencies.items() if least * size <= df <= most * size)

    def queries(self, count: int) -> dict[str, list[str]]:
        """Return `count` queries of each family."""
        middle, common = self._between(0.005, 0.02), self._between(0.4, 0.75)
        sample = self._random.sample

        def twelve() -> list[str]:
            words: dict[str, None] = {}
            while len(words) < 12:
                words[self._draw(1)[0]] = None
            return list(words)

        families: dict[str, Callable[[], list[str]]] = {
            "3 mid-frequency terms": lambda: sample(middle, 3),
            "2 and one very common": lambda: [*sample(middle, 2), *sample(common, 1)],
            "one very common term": lambda: sample(common, 1),
            "12 words": twelve,
            "no match": lambda: [f"z{word}" for word in self._draw(3)],
        }
        return {name: [" ".join(family()) for _ in range(count)] for name, family in families.items()}


def batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the texts of each write transaction."""
    many = max(0, len(texts) - SINGLES)
    for begin in range(0, many, BATCH):
        yield texts[begin : min(begin + BATCH, many)]
    for text in texts[many:]:
        yield [text]


def filled_store(folder: Path, texts: Sequence[str]) -> SqliteStore:
    """Return a store with the texts as current memories."""
    store = SqliteStore(folder)
    now = timestamp(0)
    for batch in batches(texts):

        def work(transaction: Transaction, batch: Sequence[str] = batch) -> None:
            for text in batch:
                transaction.insert(Memory(id=memory_id(text), text=text, created_at=now, valid_from=now))

        store.write(work)
    return store


def recall(store: SqliteStore, query: str) -> bm25.Ranking:
    """Find a query's best memories as the product does."""
    with store.read() as snapshot:
        return bm25.rank(snapshot, terms.query_terms(query), limit=LIMIT, threshold=SCORE_THRESHOLD)


def naive(path: Path) -> Callable[[str], bm25.Ranking]:
    """Return the naive way: it reads and cuts every memory for every query."""
    connection = files.connect(path)

    def way(query: str) -> bm25.Ranking:
        rows = connection.execute("SELECT id, text FROM memories WHERE valid_until IS NULL")
        memories: dict[str, str] = dict(rows)
        return bm25_oracle.rank(memories, query, limit=LIMIT, threshold=SCORE_THRESHOLD)

    return way


def fts5(path: Path, texts: Sequence[str], *, merged: bool) -> Way:
    """Return SQLite's own full-text search through the same driver, filled in the same transactions.

    Args:
        merged: Whether its index is brought into its fastest form then; a store that is written to does not stay in it.
    """
    path.touch()
    connection = files.connect(path)
    connection.execute("CREATE VIRTUAL TABLE memories USING fts5(id UNINDEXED, text)")
    for batch in batches(texts):
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO memories VALUES (?, ?)", ((memory_id(text), text) for text in batch))
        connection.execute("COMMIT")
    if merged:
        connection.execute("INSERT INTO memories(memories) VALUES ('optimize')")

    def way(query: str) -> list[tuple[str, float]]:
        any_word = " OR ".join(query.split())
        return list(
            connection.execute(
                "SELECT id, rank FROM memories WHERE memories MATCH ? ORDER BY rank LIMIT ?", (any_word, LIMIT)
            )
        )

    return way


def tantivy(folder: Path, texts: Sequence[str]) -> Way | None:
    """Return the `tantivy` package's search, where it is installed."""
    try:
        module: Any = importlib.import_module("tantivy")
    except ImportError:
        return None
    builder = module.SchemaBuilder()
    builder.add_text_field("id", stored=True, tokenizer_name="raw")
    builder.add_text_field("text")
    folder.mkdir()
    index = module.Index(builder.build(), path=str(folder))
    writer = index.writer(heap_size=100_000_000, num_threads=1)
    for text in texts:
        writer.add_document(module.Document(id=memory_id(text), text=text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def way(query: str) -> list[tuple[str, float]]:
        hits = searcher.search(index.parse_query(query, ["text"]), LIMIT, count=False).hits
        return [(searcher.doc(address)["id"][0], score) for score, address in hits]

    return way


def bm25s(texts: Sequence[str]) -> Way | None:
    """Return the `bm25s` package's search (in memory, nothing of it durable), where it is installed."""
    try:
        module: Any = importlib.import_module("bm25s")
    except ImportError:
        return None
    retriever = module.BM25(method="lucene", k1=bm25.K1, b=bm25.B)
    retriever.index([text.split() for text in texts], show_progress=False)
    ids = [memory_id(text) for text in texts]

    def way(query: str) -> list[tuple[str, float]]:
        found, scores = retriever.retrieve([query.split()], k=LIMIT, show_progress=False)
        return [(ids[document], float(score)) for document, score in zip(found[0], scores[0], strict=True)]

    return way


def run(size: int, *, queries: int, rounds: int) -> tuple[harness.Table, str]:
    """Measure one size; return its table, and the hash of all results of recall, which the naive way confirms."""
    corpus = Corpus(size)
    table = harness.Table(title=f"{size:,} memories, ms p50 (p95)", ways=WAYS)
    results: list[bm25.Ranking] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "mem"
        store = filled_store(folder, corpus.texts)
        with contextlib.closing(store):
            by_naive = naive(folder / FILE_NAME)
            ways: dict[str, Callable[[str], object] | None] = {
                "recall": lambda query: recall(store, query),
                "FTS5": fts5(Path(name) / "fts.db", corpus.texts, merged=False),
                "FTS5, merged": fts5(Path(name) / "merged.db", corpus.texts, merged=True),
                "tantivy": tantivy(Path(name) / "tantivy", corpus.texts),
                "bm25s": bm25s(corpus.texts),
            }
            for family, asked in corpus.queries(queries).items():
                seconds = harness.timed({way: run for way, run in ways.items() if run}, asked, rounds=rounds)
                few = asked[: NAIVE_QUERIES_MAX if size <= NAIVE_SIZE_MAX else 1]
                table.add(family, seconds | harness.timed({"naive": by_naive}, few, rounds=1))
                results += [recall(store, query) for query in asked]
                assert all(recall(store, query) == by_naive(query) for query in few), family
    return table, harness.result_hash(results)


def main() -> None:
    """Print the machine, and a table and a hash for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, metavar="SIZE", help=f"memories; default {SIZES}")
    parser.add_argument("--million", action="store_true", help="also 1,000,000 memories (about half an hour)")
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(harness.machine())
    for size in [*(arguments.sizes or SIZES), *([1_000_000] if arguments.million else [])]:
        table, results = run(size, queries=arguments.queries, rounds=arguments.rounds)
        print(f"\n{table}\n\nresults {results}", flush=True)


if __name__ == "__main__":
    main()
