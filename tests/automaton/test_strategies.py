"""Records of selection strategies: complete, and an unknown name falls through to none."""

import pickle
from importlib.resources import files

import pytest

import cer_gpu
from cer_gpu.automaton.strategies import STRATEGIES, strategy_named


def test_the_grammar_has_a_keyword_for_each_record_and_no_other():
    grammar = files("cer_gpu.ceql").joinpath("grammar.lark").read_text(encoding="utf-8")
    rule = next(line for line in grammar.splitlines() if line.startswith("strategy:"))
    keywords = set(rule.removeprefix("strategy:").replace("|", " ").split())
    assert keywords == {*STRATEGIES, "NXT"}
    assert cer_gpu.compile("SELECT NXT * FROM S WHERE A")._plan.strategy is STRATEGIES["NEXT"]


def test_the_name_of_an_unknown_strategy_is_refused():
    with pytest.raises(KeyError):
        strategy_named("SHORTEST")


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_pickled_record_is_loaded_as_the_same_object(name):
    assert pickle.loads(pickle.dumps(STRATEGIES[name])) is STRATEGIES[name]


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_words_of_a_strategy_leave_the_verb_open_iff_it_compares(name):
    strategy = STRATEGIES[name]
    assert ("{}" in strategy.words) == strategy.compares
    assert (strategy.too_long is not None) <= strategy.compares
