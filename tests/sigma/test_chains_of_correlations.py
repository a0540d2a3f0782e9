"""Correlations on correlations: the size of a query is bounded before it is written."""

import time

import pytest

from cer_gpu.rules import load
from cer_gpu.sigma.correlations import MAX_COPIED


def write_rules(folder, n_base, n_correlations, references):
    for i in range(n_base):
        (folder / f"b{i}.yml").write_text(
            f"title: b{i}\nname: b{i}\nlogsource: {{product: windows}}\n"
            f"detection: {{s: {{x: {i}, name|contains: v{i}}}, condition: s}}\n"
        )
    for i in range(n_correlations):
        (folder / f"c{i:04}.yml").write_text(
            f"title: c{i}\nname: c{i}\ngenerate: true\ncorrelation: {{type: event_count, "
            f"rules: [{', '.join(references(i))}], group-by: [host], timespan: 5m, condition: {{gte: 10}}}}\n"
        )


@pytest.mark.long("long chains of rules")
@pytest.mark.parametrize(
    "references",
    [
        lambda i: [f"c{i - 1}" if i else "b0"],
        lambda i: [f"c{j}" for j in range(max(0, i - 3), i)] or ["b0", "b1"],
    ],
)
@pytest.mark.parametrize("n", [13, 30, 200])
def test_a_chain_of_correlations_is_refused_before_its_text_is_written(tmp_path, n, references):
    write_rules(tmp_path, 2, n, references)
    begun = time.process_time()
    rules = load(tmp_path, time_column="ts", errors="skip")
    assert time.process_time() - begun < 10
    assert {"b0", "b1", "c0", "c1", "c2"} <= set(rules)
    assert len(rules) + len(rules.skipped) == n + 2
    assert max(len(rule.text) for rule in rules.rules.values()) < 20 * MAX_COPIED
    said = [str(error) for error in rules.skipped.values()]
    assert any("each level doubles those below it\nhint: " in each for each in said)
    assert all(each.startswith(str(tmp_path)) for each in said)


@pytest.mark.long("converts and compiles 1,100 rules")
@pytest.mark.parametrize("levels", [1, 2])
def test_many_correlations_load_in_time_linear_in_their_number(tmp_path, levels):
    write_rules(
        tmp_path,
        100,
        1_000,
        lambda i: [f"c{i - 500}"] if levels == 2 and i >= 500 else [f"b{i % 100}", f"b{7 * i % 100}"],
    )
    begun = time.process_time()
    rules = load(tmp_path, time_column="ts", errors="skip")
    assert time.process_time() - begun < 15  # 5 s where nothing else runs
    assert (len(rules), len(rules.skipped)) == (1_100, 0)
