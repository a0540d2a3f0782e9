"""Settings of all tests: the device, the number of random cases, and the tests left out if packages are missing."""

import functools
import gc
import importlib.util
import os
import re
import sys
from pathlib import Path

import durations
import pytest
import sizes
from durations import pytest_runtest_makereport, pytest_runtest_protocol  # noqa: F401  hooks

HERE = Path(__file__).parent
OPTIONAL = (
    "click", "deltalake", "duckdb", "hypothesis", "IPython", "matplotlib", "narwhals", "pandas", "polars", "psutil",
    "pyiceberg", "pyspark", "rich",
)  # fmt: skip
MISSING = [name for name in OPTIONAL if importlib.util.find_spec(name) is None]

if "hypothesis" not in MISSING:
    from hypothesis import settings

    # the first example of a test may compile kernels
    settings.register_profile("same", deadline=None, derandomize=True)
    settings.register_profile("anew", deadline=None, derandomize=False, print_blob=True)
    settings.load_profile("anew" if sizes.SEED else "same")


NEW_OBJECTS = 50_000  # after which Python looks for cycles of garbage
SHORT = "not long"  # the tests of `make test`
DRAWS = {"scaled", "EXAMPLES"}  # what a module imports that draws cases without Hypothesis


@functools.cache
def needs_what_is_missing(path: Path) -> bool:
    """Return True if a test file, or a module beside this one that it imports, imports a missing package."""
    imported = re.findall(r"^(?:from|import) ([\w.]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    imported += ["click"] if "cer_gpu.cli" in imported else []
    helpers = [HERE / f"{name}.py" for name in imported]
    return any(name in MISSING for name in imported) or any(h.exists() and needs_what_is_missing(h) for h in helpers)


def pytest_addoption(parser):
    parser.addoption(
        "--device",
        choices=["cuda", "host"],
        help="evaluate all predicates by the kernels: on a GPU, or on the CPU, built by g++",
    )


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(durations.Durations(only_short=config.option.markexpr == SHORT), "durations")
    # processes that tests start, more than a hundred, share the bytecode of these packages
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("CER_GPU_NOTICES", "off")  # kernels may be compiled in any test
    if config.getoption("--hypothesis-seed", None) is not None:
        settings.load_profile("anew")  # the other profile would not look at the seed
    elif sizes.SEED:
        config.option.hypothesis_seed = str(sizes.SEED)
    if config.getoption("--device") == "cuda":
        os.environ["CER_GPU_PREDICATES"] = "cuda"  # also for the processes that tests start
    if os.name == "posix" and hasattr(config, "workerinput"):
        # before tests are collected: some evaluate a query for their parameters
        _compile_once(Path(config.option.basetemp).parent)  # the same for all processes


def pytest_collection_modifyitems(items):
    """Mark the tests whose cases are drawn, which `make test` runs on few cases and `make test-rest` on more."""
    for item in items:
        drawn = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if drawn or not DRAWS.isdisjoint(vars(item.module)):
            item.add_marker("drawn")


def pytest_collection_finish():
    """Let Python's search for cycles of garbage pass over the half million objects of tests that are to run.

    It begins less often, too, as tests that compile many queries make many objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 10, 10)


# Tests that share a session of Spark run in one process, so that Java starts once for them; others of Spark need none.
SESSIONS = (
    (
        "test_alerts",
        "test_demo",
        "test_job",
        "test_keys_and_pipes",
        "test_local_session",
        "test_match",
        "test_match_sets",
        "test_one_session",
        "test_scan",
        "test_spark_runs",
        "test_workers_killed",
    ),
    (
        "test_everywhere",
        "test_file_failures",
        "test_file_layouts",
        "test_source",
        "test_streaming",
        "test_table_function",
        "test_tables",
    ),
)
# Folders, files and sessions, those that take long first; processes of Spark wait until kernels are on disk.
LONG = (
    "spark, session 0",
    "engine",
    "predicates",
    "spark, session 1",
    "backend",
    "spark/test_connect",
    "spark/test_own_processes",
    "runtime",
    "test_benchmarks",
    "cli",
    "spark",
    "parallel",
    "partition",
    "test_gpu_scripts",
    "ceql",
    "test_reference",
    "test_errors_page",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Run one process more than there are cores (`-n auto`): Spark's tests wait for Java half of the time."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Deal the longest files first (`--dist loadfile`), so that all processes end at about the same time."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    def rank(scope):
        return next((k for k, folder in enumerate(LONG) if scope.startswith(f"tests/{folder}")), len(LONG))

    class LongestFirst(LoadFileScheduling):
        crashed = None

        def _split_scope(self, nodeid):
            scope = super()._split_scope(nodeid)
            sessions = (k for k, files in enumerate(SESSIONS) if Path(scope).stem in files)
            k = next(sessions, None) if scope.startswith("tests/spark/") else None
            return scope if k is None else f"tests/spark, session {k}"

        def remove_node(self, node):
            # of a process that crashed; the test that ended it has failed, and would end the next one as well
            pending = (
                (tests, test) for tests in self.assigned_work[node].values() for test in tests if not tests[test]
            )
            self.crashed = next(pending, None)
            return super().remove_node(node)

        def _reschedule(self, node):
            if self.crashed is not None:
                tests, test = self.crashed
                tests[test], self.crashed = True, None
            # xdist takes back all files of such a process; one without tests left would hold up the next
            for scope in [scope for scope, tests in self.workqueue.items() if all(tests.values())]:
                del self.workqueue[scope]
            super()._reschedule(node)

        def _assign_work_unit(self, node):
            self.workqueue.move_to_end(min(self.workqueue, key=rank), last=False)
            super()._assign_work_unit(node)

    return LongestFirst(config, log)


def _compile_once(folder):
    """Compile each kernel in one of the processes; the others wait, and load what Numba keeps of it on disk."""
    import fcntl

    from numba.core.caching import NullCache
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import Dispatcher

    compile_ = Dispatcher.compile

    def compile_alone(self, signature):
        if isinstance(self._cache, NullCache):
            return compile_(self, signature)
        name = f"{self.py_func.__module__}.{self.py_func.__qualname__}.lock"
        with global_compiler_lock, open(folder / name, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return compile_(self, signature)

    Dispatcher.compile = compile_alone


@pytest.fixture(scope="session", autouse=True)
def _device(request, tmp_path_factory):
    if request.config.getoption("--device") == "host":
        from host_device import Build, HostDevice

        from cer_gpu.predicates import guards as predicates
        from cer_gpu.predicates import placement

        build = Build(tmp_path_factory.mktemp("kernels"))
        placement.missing, predicates.open_device = lambda: None, lambda: HostDevice(build)
        predicates.TIER = predicates.CUDA


def pytest_ignore_collect(collection_path):
    file = collection_path / "conftest.py" if collection_path.is_dir() else collection_path
    if MISSING and file.suffix == ".py" and file != HERE / "conftest.py" and file.exists():
        return True if needs_what_is_missing(file) else None
    return None


def pytest_terminal_summary(terminalreporter):
    if sizes.SEED:
        terminalreporter.write_line(f"drawn anew: CER_GPU_DRAWS={sizes.SEED} draws the same cases again")
    strategies = sys.modules.get("strategies")
    if strategies is not None and strategies.n_cases["passed"]:
        terminalreporter.write_line(f"{strategies.n_cases['passed']:,} random cases passed")
    if MISSING:
        files = [*HERE.rglob("test_*.py"), *(path for path in HERE.rglob("conftest.py") if path.parent != HERE)]
        left_out = sorted(str(path.relative_to(HERE)) for path in files if needs_what_is_missing(path))
        terminalreporter.write_line(f"left out, without {', '.join(MISSING)}: {', '.join(left_out)}")
