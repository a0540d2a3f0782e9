"""A log, or a state, that was damaged, cut off or is an older copy: an error that removes nothing, or right rows."""

import random
import shutil

import pytest
from follow.live import add_file, expected_rows, followed, found_in, random_events
from follow.test_following import KilledHere, as_texts, kill_at
from sizes import scaled, seeds

import cer_gpu

OUTS = ["found", "found.jsonl"]


def state_of(folder, out):
    return folder / out / "_state" if out == "found" else folder / f"{out}.state"


def contents(folder):
    """Return all that is in a folder, but for locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def assert_refused_or_right(folder, out, events):
    """Go on, and return whether it was refused, without a change."""
    before = contents(folder)
    said = None
    try:
        followed(folder, out)
    except (cer_gpu.CheckpointError, cer_gpu.OptionError) as error:
        said = str(error)
    if said is not None:
        assert "hint: " in said
        after = contents(folder)
        moved = {name for name in before if "/.part-" in name or "/rows-" in name}  # those of a committed step
        assert {name: after.get(name) for name in before.keys() - moved - {out}} == {
            name: data for name, data in before.items() if name not in moved | {out}
        }
        rows = as_texts(found_in(folder / out))
        assert rows == as_texts(expected_rows(events))[: len(rows)]
        return True
    assert as_texts(found_in(folder / out)) == as_texts(expected_rows(events))
    return False


def steps(folder, out, events, n_steps, last=None):
    """Read events in steps; the last one is ended within, at a part of it."""
    size = -(-len(events) // n_steps)
    for i in range(n_steps):
        add_file(folder / "in", f"{i}.parquet", events.slice(i * size, size))
        if last is not None and i == n_steps - 1:
            with pytest.raises(KilledHere):
                followed(folder, out, passed=kill_at(last, 0))
        else:
            followed(folder, out)


@pytest.mark.parametrize("n_steps", [1, 2, 4])
@pytest.mark.parametrize("out", OUTS)
def test_a_log_that_lost_lines_is_refused(tmp_path, out, n_steps):
    events = random_events(1, 80)
    steps(tmp_path, out, events, n_steps)
    log = state_of(tmp_path, out) / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    flipped = bytearray(lines[-1])
    flipped[len(flipped) // 2] ^= 1
    for damaged in [*(lines[:n] for n in range(len(lines))), [*lines[:-1], bytes(flipped)], [*lines, lines[-1]]]:
        log.write_bytes(b"".join(damaged))
        assert assert_refused_or_right(tmp_path, out, events), damaged
    log.write_bytes(b"".join(lines))
    assert not assert_refused_or_right(tmp_path, out, events)


@pytest.mark.parametrize("out", OUTS)
def test_an_older_copy_of_the_state_is_refused_beside_its_results(tmp_path, out):
    events = random_events(2, 120)
    for i in range(3):
        add_file(tmp_path / "in", f"{i}.parquet", events.slice(40 * i, 40))
        followed(tmp_path, out)
        if not i:
            shutil.copytree(state_of(tmp_path, out), tmp_path / "older")
    shutil.rmtree(state_of(tmp_path, out))
    shutil.copytree(tmp_path / "older", state_of(tmp_path, out))
    before = contents(tmp_path)
    with pytest.raises(cer_gpu.CheckpointError, match=r"ends with step 1, and .* (is of a later one|bytes, more than)"):
        followed(tmp_path, out)
    assert contents(tmp_path) == before


def edited(data, rng):
    """Return bytes with one random edit."""
    at = rng.randrange(len(data) + 1)
    kind = rng.randrange(6)
    if kind == 0 and data:
        changed = bytearray(data)
        changed[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
        return bytes(changed)
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + rng.randbytes(rng.randint(1, 20)) + data[at:]
    if kind == 3:
        return data[:at] + data[at + rng.randint(1, 30) :]
    lines = data.splitlines(keepends=True)
    chosen = rng.randrange(len(lines)) if lines else 0
    return b"".join(lines[:chosen] + lines[chosen + 1 :] if kind == 4 else [*lines[: chosen + 1], *lines[chosen:]])


@pytest.mark.long("hundreds of states, each taken up again")
@pytest.mark.parametrize("out", OUTS)
def test_random_edits_of_each_file_of_a_state_end_in_an_error_or_in_the_right_rows(tmp_path, out):
    n_refused = 0
    for seed in seeds(3):
        rng, events, made = random.Random(seed), random_events(seed, 60), tmp_path / f"made{seed}"
        steps(made, out, events, 1 + seed % 3, last=[None, "rows", "state", "commit"][(seed + len(out)) % 4])
        state = state_of(made, out)
        hidden = sorted(state.parent.glob(".part-*")) if out == "found" else []
        names = [path.relative_to(made) for path in [*sorted(state.iterdir()), *hidden]]
        for name in names:
            for _ in range(scaled(150 if name.name == "log.jsonl" else 30)):
                copy = tmp_path / "copy"
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(made, copy)
                # the log names the folder of the events, which stays where it is
                shutil.rmtree(copy / "in")
                (copy / name).write_bytes(edited((copy / name).read_bytes(), rng))
                n_refused += refused_or_right_in(copy, made, out, events)
    assert n_refused


def refused_or_right_in(copy, made, out, events):
    kept = made / "kept"
    for each in (out, f"{out}.state"):
        if (made / each).exists():
            (made / each).rename(kept.with_name(f"kept-{each}"))
            (copy / each).rename(made / each)
        elif (copy / each).exists():
            (copy / each).rename(made / each)
    try:
        return assert_refused_or_right(made, out, events)
    finally:
        for each in (out, f"{out}.state"):
            path = made / each
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            if (made / f"kept-{each}").exists():
                (made / f"kept-{each}").rename(path)
