"""SigmaHQ's rules about Windows against the reference, over events made to fit them; skipped without the rules."""

import random
import zipfile

import pyarrow as pa
import pytest
from outside_data import FOLDER
from sizes import scaled, seeds

import cer_gpu
import cer_gpu.sigma
from tests.sigma import reference as ref
from tests.sigma.made_events import Maker

yaml = pytest.importorskip("yaml")
pytest.importorskip("sigma")

RULES = FOLDER.parent / "rules" / "sigma_rules.zip"


def drawn_rules(rnd, n):
    """Return n rules of one document each, without placeholders, by their titles."""
    with zipfile.ZipFile(RULES) as archive:
        names = sorted(name for name in archive.namelist() if "/windows/" in name and name.endswith(".yml"))
        found = {}
        for name in rnd.sample(names, n):
            text = archive.read(name).decode()
            rule = yaml.safe_load(text)
            if "|expand" not in text and "detection" in rule:
                found.setdefault(rule["title"], rule)
    return found


@pytest.mark.skipif(not RULES.exists(), reason="the rules are not there")
@pytest.mark.parametrize("seed", seeds(2))
def test_public_rules_find_what_the_reference_says(seed):
    rnd = random.Random(seed)
    rules = drawn_rules(rnd, scaled(120))
    maker = Maker(rnd)
    events = [maker.event(rule) for rule in rules.values() for _ in range(3)]
    names = sorted({name for event in events for name in event})
    table = pa.Table.from_pylist(events, pa.schema([(name, pa.string()) for name in names]))
    loaded = cer_gpu.sigma.load(yaml.safe_dump_all(rules.values(), allow_unicode=True, sort_keys=False))
    assert loaded.errors == []
    answers = cer_gpu.compile_all(loaded).evaluate(table, output="ends")
    found = {name: answer["end"].to_pylist() for name, answer in answers.items()}
    assert sum(map(bool, found.values())) > len(rules) / 2
    for name, rule in rules.items():
        test = ref.test_of(rule)
        assert found[name] == [row for row, event in enumerate(events) if test(event)], name
