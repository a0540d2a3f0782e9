"""Queries changed at random: each compiles or raises a CerError, in bounded time.

The texts are those of the tests, docs and examples. CER_GPU_EXAMPLES scales the number of changed queries; a
failure prints the seed and the text.
"""

import contextlib
import functools
import random
import re
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from sizes import scaled, seeds

import cer_gpu
from cer_gpu.ceql.parser import parse

ROOT = Path(__file__).parent.parent.parent
N_QUERIES = max(60, scaled(150, most=6000))  # fewer are not of each kind
SECONDS = 20  # far more than any query takes, even on a busy machine; an exponential search takes hours
SCHEMA = pa.schema(
    {
        "type": pa.string(),
        "ts": pa.timestamp("ms"),
        "name": pa.dictionary(pa.int32(), pa.string()),
        "price": pa.float64(),
        "volume": pa.int64(),
        "open": pa.bool_(),
        "cost": pa.decimal128(20, 2),
        "tags": pa.list_(pa.string()),
    }
)
OPTIONS = [
    {},
    {"schema": SCHEMA},
    {"type_column": None},
    {"time_column": "ts", "schema": SCHEMA},
    {"relations": {"T": ["name"]}},
]


@functools.cache
def stored_texts():
    """Return all queries in the golden files, the examples, the tests and the docs."""
    texts = [path.read_text().split("\n---- ")[0] for path in (ROOT / "tests/ceql/golden_errors").glob("*.txt")]
    texts += [path.read_text() for path in (ROOT / "examples").rglob("*.ceql")]
    quoted = re.compile(r"([\"'`])(SELECT\s.*?|Q\([^)]*\) <- .*?)(?<!\\)\1", re.DOTALL)
    for folder, pattern in ("docs", "*.md"), ("tests", "*.py"):
        for path in (ROOT / folder).rglob(pattern):
            texts += [match[2] for match in quoted.finditer(path.read_text()) if len(match[2]) < 2_000]
    return sorted(set(texts))


@functools.cache
def right_texts():
    """Return those that parse."""
    return [text for text in stored_texts() if parses(text)]


def parses(text):
    with contextlib.suppress(cer_gpu.CerError):
        parse(text)
        return True
    return False


TOKENS = re.compile(r"'(?:[^']|'')*'|[A-Za-z_0-9]+|--[^\n]*|/\*.*?\*/|\s+|.", re.DOTALL)
SPACES = [" ", "\t", "\n    ", " " * 40, " " * 4_000, "\n" * 500, "/* x */", "-- x\n", " /* ( */\n-- [\n" * 200]
CHARACTERS = "()[]{}<>=!;:,.+-*/%'\"`|&?_ \\\n\0\x1béßİ漢\U0001f525\ud800aAzZ09"
WORDS = [
    *TOKENS.findall(
        "SELECT FROM WHERE FILTER OR AND NOT AS IN LIKE RANGE PARTITION BY WITHIN CONSUME LIMIT EVENTS HOURS"
    ),
    *TOKENS.findall(
        "SECONDS ALL <- Q(x) ANY NEXT MAX STRICT NONE TRUE FALSE A x price 'text' '(' 0 1 99999999999999999999 \ufeff"
    ),
    *TOKENS.findall("; : + > [ ] { } ( ) , * <> = % ! ? HAVING THEN LAG COUNT FIRST abs round"),
    *(
        "->",
        "->+",
        ":*",
        "{2}",
        "{2,3}",
        ":{1,2}",
        "->{2,}",
        "; !A ;",
        "; !(B AS b FILTER b.price > A.price) ;",
        "LAG(price)",
    ),
    *("1.e3", "2.", ".5", "1e308", "1e999", "..", ":+", "==", "`a`", "/*", "*/", "--"),
]
FORMULA = re.compile(r"(?<=WHERE )(.*?)(?= PARTITION| WITHIN| CONSUME| LIMIT|;?\s*$)", re.DOTALL)
KINDS = [re.compile(kind) for kind in (r"[A-Za-z_]\w*", r"[0-9]+", r"'.*", r"[;:]|OR|AND", r"[=<>+*/-]")]


def changed(text, rng):
    """Return a text after one change; after most changes, many queries are still in the grammar."""
    return rng.choice((torn, reworked, reworked))(text, rng)


def start_and_change(rng):
    """Return a stored text, most often one that parses, after a few changes."""
    text = rng.choice(rng.choice([stored_texts(), *[right_texts()] * 3]))
    for _ in range(rng.choice([1, 1, 2, 3, 6])):
        text = changed(text, rng)[:20_000]
    return text


def torn(text, rng):
    """Change characters, tokens or parts without regard to the grammar."""
    tokens = TOKENS.findall(text) or [" "]
    i, j = sorted((rng.randrange(len(tokens) + 1), rng.randrange(len(tokens) + 1)))
    before, part, after = tokens[:i], tokens[i:j], tokens[j:]
    match rng.randrange(8):
        case 0 | 1:
            at = rng.randrange(len(text) + 1)
            return text[:at] + rng.choice(CHARACTERS) + text[at + rng.randrange(2) :]
        case 2:
            before += [" ", rng.choice(WORDS), " "]
            part = part[rng.randrange(2) :]
        case 3:
            n = rng.choice([1, 2, 30, 2_000])
            part = ["(" * n, *part, ")" * (n + rng.randrange(-1, 2))]
        case 4:
            part = part * rng.choice([0, 2, 20])
        case 5:
            part = [" ".join([rng.choice(WORDS)] * rng.choice([3, 200, 2_000]))]
        case 6:
            rng.shuffle(part)
        case 7:
            other = TOKENS.findall(rng.choice(stored_texts())) or [" "]
            after = other[rng.randrange(len(other)) :]
    return "".join([*before, *part, *after])


def reworked(text, rng):
    """Change spaces, names, literals and operators, or grow the formula or a predicate."""
    tokens = TOKENS.findall(text) or [" "]
    i = rng.randrange(len(tokens))
    n = rng.choice([1, 1, 2, 5, 60, 300])
    match rng.randrange(6):
        case 0:
            return "".join(
                token + rng.choice(SPACES) if token.isspace() or not token.isidentifier() else token for token in tokens
            )
        case 1:
            kind = next((kind for kind in KINDS if kind.fullmatch(tokens[i])), None)
            alike = [token for token in TOKENS.findall(rng.choice(stored_texts())) if kind and kind.fullmatch(token)]
            return "".join([*tokens[:i], rng.choice(alike or [tokens[i]]), *tokens[i + 1 :]])
        case 2:  # the formula, nested in a larger one
            other = FORMULA.search(rng.choice(stored_texts()))
            join = rng.choice([" ; ", " : ", " OR ", " ALL ", " ; NOT(A) : ", " -> ", " ; !A ; "])
            grown = join.join(["({0})", *[f"({other[0]})" if other else "A"] * n])
            grown = rng.choice([grown, "(" * n + "{0}" + f"{join}B)" * n, "{0}" + f" FILTER A[price > {n}]{join}A" * n])
            return FORMULA.sub(lambda match: grown.replace("{0}", match[0]), text, count=1)
        case 3:  # postfix operators after the formula
            after = rng.choice(
                [
                    *("+", ":+", "?", "*", "{2}", " AS x", " OR A"),
                    " FILTER A[price > 1]",
                    "+ FILTER A[a = 1] OR A[b = 2]",
                ]
            )
            return FORMULA.sub(lambda match: f"({match[0]})" + after * n, text, count=1)
        case 4:  # prefixes of a predicate
            grown = rng.choice(
                ["NOT ", "NOT (price > 1 OR ", "price IN {1, 2} AND ", "name LIKE 'x.*' OR ", "-", "(", "price + "]
            )
            close = ")" * (n * grown.count("("))
            return re.sub(
                r"\[([^\[\]{}]*[=<>][^\[\]{}]*)\]", lambda match: f"[{grown * n}{match[1]}{close}]", text, count=1
            )
        case _:
            return re.sub(r"\b[A-Z]\b", lambda match: rng.choice(["({0})", "{0}+", "{0}\n"]).format(match[0]), text)


@contextlib.contextmanager
def at_most(seconds):
    """Raise TimeoutError in a block that takes longer."""

    def stop(*_):
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(text, options):
    try:
        query = cer_gpu.compile(text, **options)
    except cer_gpu.CerError as error:
        return type(error).__name__
    if len(text) < 2_000:
        assert str(query.explain(detail="all"))
    return "compiled"


def test_enough_texts_are_found():
    assert len(stored_texts()) > 400
    assert len(right_texts()) > 200


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="there is no alarm here")
def test_changed_queries_compile_or_raise_a_cer_error():
    outcomes = set()
    for seed in seeds(N_QUERIES):
        rng = random.Random(seed)
        text, options = start_and_change(rng), rng.choice(OPTIONS)
        try:
            with at_most(SECONDS):
                outcomes.add(outcome(text, options))
        except BaseException:
            print(f"seed {seed}: {text!r}")
            raise
    assert {"compiled", "QuerySyntaxError", "QueryError"} <= outcomes
