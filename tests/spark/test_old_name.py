"""`strategy`, the old name of `distribution`, is taken with a note; both together are an error; without Spark."""

import pytest

import cer_gpu
from cer_gpu.errors import OptionError
from spark_glue import explain, match, run
from spark_glue.cli import main
from spark_glue.source.options import given_options

QUERY = "SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS"


def test_the_old_keyword_is_taken_with_a_warning():
    query = cer_gpu.compile(QUERY)
    with pytest.warns(DeprecationWarning, match="strategy is called distribution now") as warned:
        said = explain(query, strategy="broadcast")
    assert [warning.filename for warning in warned] == [__file__]
    assert said == explain(query, "broadcast") == explain(query, distribution="broadcast")
    assert said.startswith("replicate: ")


@pytest.mark.parametrize("function", [explain, match, run])
def test_both_keywords_are_an_error(function):
    with pytest.raises(OptionError, match="got also strategy, its old name\nhint: leave strategy out"):
        function(cer_gpu.compile(QUERY), strategy="range", distribution="range")


def test_the_old_option_of_the_command_line_is_taken_with_a_note(capsys):
    assert main(["explain", QUERY, "--strategy", "broadcast"]) == 0
    told = capsys.readouterr()
    assert main(["explain", QUERY, "--distribution", "broadcast"]) == 0
    assert capsys.readouterr() == (told.out, "")
    assert told.out.startswith("replicate: ")
    assert told.err.startswith("note: strategy is called distribution now")


def test_both_options_of_the_command_line_are_an_error(capsys):
    assert main(["explain", QUERY, "--strategy", "range", "--distribution", "range"]) == 1
    assert "got also strategy, its old name" in capsys.readouterr().err


def test_the_old_option_of_the_data_source_is_taken_with_a_warning():
    with pytest.warns(DeprecationWarning, match="strategy is called distribution now"):
        assert given_options({"STRATEGY": "range", "query": QUERY}) == {"query": QUERY, "distribution": "range"}
    with pytest.raises(OptionError, match="got also strategy"):
        given_options({"strategy": "range", "distribution": "range"})
