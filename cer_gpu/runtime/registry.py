"""The runtimes by name, and the one function that makes them."""

from __future__ import annotations

from typing import Any

from cer_gpu.automaton.alphabet import Table
from cer_gpu.automaton.atom_graph import AtomTable
from cer_gpu.runtime.chain_counter import ChainCounter
from cer_gpu.runtime.counter import Counter
from cer_gpu.runtime.events import RunOptions
from cer_gpu.runtime.instances import InstanceGraph
from cer_gpu.runtime.keyed_stacks import KeyedStackCounter, KeyedStacks
from cer_gpu.runtime.neighbours import NeighbourCounter, NeighbourLister
from cer_gpu.runtime.pairs import PairJoin, is_pair
from cer_gpu.runtime.parallel.conjunction_counter import ConjunctionCounter
from cer_gpu.runtime.parallel.products import Products
from cer_gpu.runtime.progress.funnel import Funnel, TestedFunnel
from cer_gpu.runtime.protocol import Length, Runtime
from cer_gpu.runtime.reading.reader import EventReader
from cer_gpu.runtime.recent.graph_run import GraphRun
from cer_gpu.runtime.recent.run import RecentRun
from cer_gpu.runtime.recognising import Recognising
from cer_gpu.runtime.run import AutomatonRun
from cer_gpu.runtime.stacks import StackCounter, StackLister
from cer_gpu.runtime.window_choice import WindowCounter, WindowLister

RUNTIMES: dict[str, type[Runtime]] = {
    "automaton": AutomatonRun,
    "counter": Counter,
    "window_lister": WindowLister,
    "window_counter": WindowCounter,
    "stacks": StackLister,
    "keyed_stacks": KeyedStacks,
    "stack_counter": StackCounter,
    "keyed_stack_counter": KeyedStackCounter,
    "neighbours": NeighbourLister,
    "neighbour_counter": NeighbourCounter,
    "chain_counter": ChainCounter,
    "chain_weigher": ChainCounter,
    "instances": InstanceGraph,
    "products": Products,
    "conjunction_counter": ConjunctionCounter,
    "recogniser": Recognising,
    "funnel": Funnel,
    "tested_funnel": TestedFunnel,
    "recent": RecentRun,
    "recent_graph": GraphRun,
    "events": EventReader,
}


def make_runtime(name: str, table: Table, options: RunOptions, length: Length) -> Runtime:
    """Make a runtime.

    Parameters
    ----------
    name
        One of RUNTIMES.
    table
        As `PhysicalPlan.table` makes it for the runtime.
    options
    length
        Length of the window; None if there is none.
    """
    runtime_type: Any = RUNTIMES[name]
    if runtime_type is InstanceGraph and isinstance(table, AtomTable) and is_pair(table, options):
        runtime_type = PairJoin
    runtime: Runtime = runtime_type(table, options, length)
    return runtime
