"""Status codes: one enumeration for all loops, and no code that a runtime takes for another one."""

import pyarrow as pa
import pytest
from cases import by_automaton

import cer_gpu
from cer_gpu.backend import counting, evaluation, status
from cer_gpu.backend.chains import counting as chain_counting
from cer_gpu.backend.chains import listing as chain_listing

QUERY = "SELECT * FROM S WHERE A ; B+ ; C WITHIN 5 EVENTS"
EVENTS = pa.table({"type": list("ABC")})
LOOPS = [  # the module and name of a loop, what runs it, and a status that it never returns
    (evaluation, "evaluate_events", "positions", True, status.TOO_MANY),
    (counting, "count_events", "count", True, status.RENUMBER),
    (chain_listing, "list_ends", "positions", False, status.NEED_STEP),
    (chain_counting, "count_chain", "count", False, status.GROW_PATH),
]
NO_STATUS = 99


def test_each_status_stands_as_a_plain_integer_of_the_same_name():
    plain = {name: value for name, value in vars(status).items() if type(value) is int}
    assert plain == {member.name: int(member) for member in status.Status}


@pytest.mark.parametrize(("module", "name", "output", "automaton", "of_others"), LOOPS)
def test_an_unknown_status_is_refused(monkeypatch, module, name, output, automaton, of_others):
    query = cer_gpu.compile(QUERY)
    query = by_automaton(query) if automaton else query
    for code, error in ((NO_STATUS, ValueError), (of_others, AssertionError)):
        monkeypatch.setattr(module, name, lambda *_, code=code: code)
        with pytest.raises(error):
            query.evaluate(EVENTS, output=output, threads=1)
