"""Very many correlations, and long chains of them: each is converted once, and none grows without bound."""

import pytest

pytest.importorskip("sigma")

from cer_gpu.rules.folder import read_folder
from cer_gpu.sigma import backend
from cer_gpu.sigma.correlations import MAX_COPIED


def rule(i):
    return (
        f"title: Base {i}\nname: base{i}\nlogsource: {{category: test}}\n"
        f"detection:\n    selection:\n        field: 'value{i}'\n    condition: selection\n"
    )


def correlation(i, rules):
    return (
        f"title: Correlation {i}\nname: over{i}\ncorrelation:\n    type: event_count\n"
        f"    rules: [{', '.join(rules)}]\n    group-by: [user]\n    timespan: 5m\n    condition: {{gte: 3}}\n"
    )


@pytest.fixture
def written(monkeypatch):
    """Count the rules that are converted, and the correlations and characters that are written."""
    counts = {"rules": 0, "correlations": 0, "characters": 0, "longest": 0}
    write, convert = backend.correlation_query, backend.CerGpuBackend.convert_rule

    def counted(correlation, *args):
        counts["correlations"] += 1
        made = write(correlation, *args)
        size = len(made.text) + len(made.predicate.text) + len(made.predicate.in_groups)
        counts["characters"] += size
        counts["longest"] = max(size, counts["longest"])
        return made

    def converted(self, rule, *args, **named):
        counts["rules"] += 1
        return convert(self, rule, *args, **named)

    monkeypatch.setattr(backend, "correlation_query", counted)
    monkeypatch.setattr(backend.CerGpuBackend, "convert_rule", converted)
    return counts


def chain(folder, n):
    folder.mkdir()
    (folder / "base0.yml").write_text(rule(0))
    for i in range(n):
        (folder / f"over{i}.yml").write_text(correlation(i, [f"over{i - 1}" if i else "base0"]))
    return read_folder(folder)


@pytest.mark.parametrize("n", [30, 120])
def test_a_long_chain_is_refused_before_it_is_written(tmp_path, written, n):
    found = chain(tmp_path / "chain", n)
    errors = dict(found.errors)
    told = [name for name, error in errors.items() if "correlations on correlations that take" in str(error)]
    (first,) = told  # those above it stand on one that has no query
    assert f"more than {MAX_COPIED:,}: each level doubles those below it\nhint: " in str(errors[first])
    assert sum("has no query" in str(error) for error in errors.values()) == len(errors) - 1
    assert 15 < len(errors) < n
    assert written["rules"] == 1
    assert written["correlations"] == n
    # however long the chain is, what is written is that of the few levels below the bound
    assert written["characters"] < 10 * MAX_COPIED


def test_a_short_chain_is_written(tmp_path, written):
    found = chain(tmp_path / "chain", 6)
    assert found.errors == []
    assert written["longest"] < 4 * MAX_COPIED


def test_a_thousand_correlations_convert_each_rule_once(tmp_path, written):
    for i in range(100):
        (tmp_path / f"base{i}.yml").write_text(rule(i))
    for i in range(1000):
        (tmp_path / f"over{i}.yml").write_text(correlation(i, [f"base{(7 * i + j) % 100}" for j in range(1 + i % 3)]))
    found = read_folder(tmp_path)
    assert (len(found.rules), found.errors) == (1000, [])
    assert (written["rules"], written["correlations"]) == (100, 1000)
    assert written["characters"] < 1000 * 2000
