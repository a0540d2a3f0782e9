"""Sets of queries that an earlier process has prepared, compared with sets that are made anew, and with each query."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sizes import scaled, seeds
from test_query_set import OUTPUTS, random_events, random_queries

import cer_gpu
import cer_gpu.sigma
from cer_gpu import cache
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.parser import parse
from cer_gpu.ceql.traversal import walk
from cer_gpu.columnar.columns import Block
from cer_gpu.compilation import compile_for_set as alone
from cer_gpu.predicates import shared_guards
from cer_gpu.predicates.cached_tables import from_plain, to_plain
from cer_gpu.preparing import over_schema, sets
from cer_gpu.sigma.loaded import SigmaRules
from cer_gpu.sigma.loading import read_rules_of, write_rules

SINGLE = (
    "SELECT * FROM S WHERE A AS a FILTER a[x > {n}]",
    "SELECT * FROM S WHERE * AS e FILTER e[x > {n} AND name GLOB 'n*' NOCASE]",
    "-- Sigma: {n}\nSELECT * FROM S WHERE * AS e FILTER e[x = '{n}' OR NOT (name IN {{'nemo', 'dory'}}) OR gone = 1]",
    "-- Sigma: {n}\nSELECT * FROM S WHERE * AS e FILTER e[name GLOB '*e{n}*' NOCASE OR f BETWEEN 1.5 AND {n}]",
    "any where x > {n}",
)


@pytest.fixture(autouse=True)
def kept_from_the_first_query_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "WORTH_SECONDS", 0)
    monkeypatch.setattr(sets, "FROM_QUERIES", 1)
    monkeypatch.setattr(over_schema, "FROM_QUERIES", 1)
    monkeypatch.setattr(shared_guards, "FROM_GUARDS", 1)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the queries that are made over a schema, and not read."""
    found: list[str] = []
    make = over_schema._describe_queries

    def noting(over: Any, names: Sequence[str]) -> Any:
        found.extend(names)
        return make(over, names)

    monkeypatch.setattr(over_schema, "_describe_queries", noting)
    return found


def random_texts(rng: random.Random) -> dict[str, str]:
    singles = {f"s{i}": rng.choice(SINGLE).format(n=rng.randint(0, 99)) for i in range(rng.randint(1, 20))}
    texts = list({**random_queries(rng), **singles}.items())
    rng.shuffle(texts)
    return dict(texts)


def compiled(texts: dict[str, str], **options: Any) -> cer_gpu.QuerySet:
    return cer_gpu.compile_all(
        texts, **{"time_column": "ts", "type_column": "type", "missing_fields": "null"} | options
    )


@pytest.mark.parametrize("seed", seeds(scaled(20, most=400)))
def test_a_kept_set_finds_what_one_made_anew_finds(seed: int, made: list[str]) -> None:
    rng = random.Random(seed)
    texts, events = random_texts(rng), random_events(rng, rng.randint(0, 150))
    output, limit = OUTPUTS[seed % len(OUTPUTS)], rng.choice([None, None, 3])
    batches = events.to_batches(max_chunksize=rng.choice([1, 7, 1000]))
    tables = []
    for _ in range(2):
        queries = compiled(texts)
        for _ in range(2):
            reader = pa.RecordBatchReader.from_batches(events.schema, batches)
            tables.append(queries.evaluate(reader, output=output, limit=limit))
        assert made == list(texts), "the second set, and the second evaluation, read what the first has kept"
    for name, text in texts.items():
        alone = compiled({name: text})[name].evaluate(events, output=output, threads=1, limit=limit)
        for found in tables:
            assert list(found) == list(texts)
            assert found[name].equals(alone), text


@pytest.mark.parametrize("seed", seeds(scaled(20, most=400)))
def test_a_filter_fitted_by_itself_is_that_of_the_compiled_query(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    texts = {**random_texts(rng), **{f"t{i}": rng.choice(SINGLE).format(n=i) for i in range(20)}}
    kinds = [pa.string(), pa.int64(), pa.float64(), pa.list_(pa.string()), pa.null(), pa.bool_()]
    kinds += [pa.dictionary(pa.int32(), pa.string()), pa.struct([("x", pa.int64())]), pa.timestamp("us")]
    schema = pa.schema(
        [(name, rng.choice(kinds)) for name in ("x", "f", "name", "gone") if rng.random() < 0.8]
        + [field for field in random_events(rng, 0).schema if field.name in ("ts", "type", "key")]
    )
    output = OUTPUTS[seed % len(OUTPUTS)]
    compiled(texts)
    kept = compiled(texts)._queries
    outputs = {name: query.resolve_output(output) for name, query in kept.items()}
    fitted = over_schema._describe_queries(over_schema.OverSchema(kept, outputs, schema, {}), list(kept))
    monkeypatch.setattr(over_schema._QueryFrames, "over", lambda framed, name: None)
    each = over_schema._describe_queries(over_schema.OverSchema(kept, outputs, schema, {}), list(kept))
    assert fitted == each


def test_rules_of_one_event_are_not_compiled_for_another_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {f"r{i}": SINGLE[3].format(n=i) for i in range(50)}
    events = pa.table({"name": ["a e7", None], "f": [1.0, 2.0], "type": ["A", "A"], "ts": [1, 2]})
    compiled(texts).evaluate(events.drop_columns("f"))
    parsed: list[str] = []
    monkeypatch.setattr(sets, "compile_for_set", lambda text, **options: parsed.append(text) or alone(text, **options))
    found = compiled(texts).evaluate(events)
    assert len(parsed) == 1
    assert [name for name, rows in found.items() if len(rows)] == [f"r{i}" for i in range(2, 50)]


@pytest.mark.parametrize("seed", seeds(scaled(8, most=100)))
def test_a_kept_set_reads_a_stream_as_each_query_does(seed: int) -> None:
    rng = random.Random(seed)
    texts, events = random_texts(rng), random_events(rng, rng.randint(1, 100))
    compiled(texts).evaluate(events)
    evaluators: list[Any] = [compiled(texts).evaluator()]
    parts: dict[str, list[pa.RecordBatch]] = {name: [] for name in texts}
    for batch in events.to_batches(max_chunksize=rng.choice([1, 9])):
        for name, rows in evaluators[-1].push(batch).items():
            parts[name].append(rows)
        if rng.random() < 0.2:
            evaluators.append(compiled(texts).restore(evaluators[-1].checkpoint()))
    for name, rows in evaluators[-1].finish().items():
        parts[name].append(rows)
    for name, text in texts.items():
        alone = compiled({name: text})[name].evaluate(events)
        assert pa.Table.from_batches(parts[name], alone.schema).equals(alone), text


def test_what_differs_in_a_text_an_option_or_the_schema_is_not_read(made: list[str]) -> None:
    rng = random.Random(3)
    events = random_events(rng, 50)
    texts = {"a": SINGLE[0].format(n=20), "b": SINGLE[2].format(n=30)}
    wider = events.append_column("gone", pa.array([1] * 50))
    variants = [
        (texts, {}, events),
        (texts | {"a": SINGLE[0].format(n=21)}, {}, events),
        (dict(reversed(texts.items())), {}, events),
        (texts, {"time_column": None}, events),
        (texts, {"missing_fields": None}, events),
        (texts, {}, wider),
        (texts, {}, events.set_column(4, "x", events["x"].cast(pa.float32()))),
    ]
    for of, options, table in variants:
        made.clear()
        compiled(of, **options).evaluate(table)
        assert len(made) == 2, (of, options)
        compiled(of, **options).evaluate(table)
        assert len(made) == 2, (of, options)


def test_a_changed_rule_or_pipeline_of_sigma_is_read_again(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    source = "logsource: {product: windows, category: process_creation}"
    text = f"title: T\n{source}\ndetection: {{s: {{Image: a}}, condition: s}}\n"
    (rules / "t.yml").write_text(text)
    first, again = (cer_gpu.sigma.load(rules) for _ in range(2))
    assert dict(first) == dict(again)
    assert (first.rules, first.fields, first.skipped_files) == (again.rules, again.fields, again.skipped_files)
    assert dict(cer_gpu.sigma.load(rules, pipelines=["windows"])) != dict(first)
    (rules / "t.yml").write_text(text.replace("Image: a", "Image: b"))
    assert "'b'" in cer_gpu.sigma.load(rules)["T"]


def test_errors_of_kept_rules_are_those_of_rules_read_anew(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "a.yml").write_text("title: [\n")
    (rules / "b.yml").write_text(
        "title: B\nlogsource: {product: windows}\ndetection: {s: {a: 1}, condition: s and t}\n"
    )
    first, again = (cer_gpu.sigma.load(rules) for _ in range(2))
    assert [(name, type(error), str(error)) for name, error in again.errors] == [
        (name, type(error), str(error)) for name, error in first.errors
    ]
    assert len(first.errors) == 2


def test_a_damaged_file_is_made_anew_wherever_it_is_damaged(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(cache._NOTICES, raising=False)
    texts, events = {"a": SINGLE[0].format(n=20)}, random_events(random.Random(1), 30)
    expected = compiled(texts).evaluate(events)
    (path,) = (tmp_path / "cer-gpu" / "over").iterdir()
    whole = path.read_bytes()
    rng = random.Random(0)
    for i in [*range(60), *rng.sample(range(len(whole)), 60)]:
        damaged = rng.choice([whole[:i], whole[:i] + bytes([whole[i] ^ 1 << rng.randrange(8)]) + whole[i + 1 :]])
        path.write_bytes(damaged)
        made.clear()
        capsys.readouterr()
        assert compiled(texts).evaluate(events) == expected
        assert made == ["a"]
        assert len(capsys.readouterr().err.splitlines()) == 1
        assert path.read_bytes() == whole


def test_kept_guards_are_read_and_made_anew_where_they_are_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(11)
    texts = {f"r{i}": rng.choice(SINGLE[:4]).format(n=rng.randint(0, 99)) for i in range(40)}
    events = random_events(rng, 100)
    expected = compiled(texts).evaluate(events)
    (path,) = (tmp_path / "cer-gpu" / "guards").iterdir()
    added: list[int] = []
    add = shared_guards.GuardList.add_to
    monkeypatch.setattr(
        shared_guards.GuardList,
        "add_to",
        lambda own, steps, number, *given, **named: added.append(number) or add(own, steps, number, *given, **named),
    )
    assert compiled(texts).evaluate(events) == expected
    assert not added, "the arrays are read"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    assert compiled(texts).evaluate(events) == expected
    assert len(added) > 10, "the arrays are made anew"


def test_guards_that_come_after_kept_ones_are_numbered_after_them() -> None:
    schema = pa.schema([("x", pa.int64()), ("name", pa.string())])
    queries = [cer_gpu.compile(f"SELECT * FROM S WHERE * AS e FILTER e[x > {n}]", type_column=None) for n in range(9)]
    bound = [query._bind(schema).guards for query in queries]
    block = Block(pa.record_batch({"x": [0, 3, 7, None], "name": ["a"] * 4}, schema))
    for n_first in (9, 9, 5, 5):
        shared = shared_guards.SharedGuards(schema, None, None)
        numbers = [shared.numbers(each) for each in bound[:n_first]]
        shared.prepare()
        numbers += [shared.numbers(each) for each in bound[n_first:]]
        assert numbers == [[n] for n in range(9)]
        rows = [shared.rows(number, block).tolist() for (number,) in numbers]
        assert rows == [[i for i, x in enumerate((0, 3, 7)) if x > n] for n in range(9)]


def test_several_processes_may_keep_one_set_at_once(made: list[str]) -> None:
    texts, events = random_texts(random.Random(5)), random_events(random.Random(5), 60)
    expected = compiled(texts).evaluate(events)
    found: list[Any] = []

    def work() -> None:
        for _ in range(3):
            queries = compiled(texts)
            for path in Path(cache.cache_folder("over")).iterdir():
                path.unlink(missing_ok=True)
            found.append(queries.evaluate(events))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    assert all(each == expected for each in found)


def test_a_query_that_does_not_fit_is_named_with_its_error_each_time() -> None:
    texts = {"a": SINGLE[0].format(n=20), "wrong": "SELECT * FROM S WHERE A AS a FILTER a[name > 3]"}
    messages = []
    for _ in range(2):
        with pytest.raises(cer_gpu.QueryTypeError) as caught:
            compiled(texts).evaluate(random_events(random.Random(1), 3))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert messages[0].startswith("query 'wrong': cannot compare column 'name'")


def test_queries_that_do_not_fit_are_left_out_each_time_and_named_with_their_errors() -> None:
    texts = {f"q{i}": f"SELECT * FROM S WHERE A AS a FILTER a[{'gone' if i == 1 else 'x'} > {i}]" for i in range(3)}
    events = pa.table({"type": ["A", "A"], "x": [1, 2], "ts": [0, 1]})
    for _ in range(2):
        queries = compiled(texts, missing_fields="error", errors="skip")
        found = queries.evaluate(events)
        assert {name: table["end"].to_pylist() for name, table in found.items()} == {"q0": [0, 1], "q2": []}
        assert {name: str(error) for name, error in queries.skipped.items()}.keys() == {"q1"}
        assert "'gone'" in str(queries.skipped["q1"])
        assert queries.count(events) == {"q0": 2, "q2": 0}
        evaluator = queries.evaluator()
        assert evaluator.push(events.to_batches()[0])["q0"].num_rows == 2
        assert list(evaluator.skipped) == ["q1"]


def test_rules_that_give_no_results_stay_known_when_rules_are_kept() -> None:
    found = SigmaRules({}, {}, silenced={"correlation": ("one", "two")})
    assert read_rules_of(write_rules(found)).silenced == found.silenced


def test_a_query_of_a_kept_set_is_the_compiled_one() -> None:
    texts = {"a": SINGLE[0].format(n=20), "b": SINGLE[2].format(n=3)}
    for _ in range(2):
        queries = compiled(texts)
        for name, query in queries.items():
            plain = cer_gpu.compile(texts[name], time_column="ts", missing_fields="null")
            said = [str(each.explain(detail="all")) for each in (query, plain)]
            assert (type(query), repr(query), said[0]) == (type(plain), repr(plain), said[1])


@pytest.mark.parametrize("seed", seeds(scaled(50, most=500)))
def test_predicates_come_back_as_they_were_written(seed: int) -> None:
    for text in random_texts(random.Random(seed)).values():
        if text.startswith("any"):
            continue
        for node in walk(parse(text, None).formula):
            if isinstance(node, s.Filtered):
                for leaf in walk(node.filter):
                    predicate = getattr(leaf, "predicate", None)
                    if predicate is not None:
                        again = from_plain(to_plain(predicate))
                        assert again == predicate
                        assert repr(again) == repr(predicate)


def test_only_nodes_of_the_language_of_values_are_made() -> None:
    with pytest.raises(KeyError):
        from_plain(["system", "true"])
    with pytest.raises(ValueError, match="no node"):
        to_plain(Path())
