"""``cer-gpu explain``: the meaning of a query, and how it runs."""

from __future__ import annotations

from pathlib import Path

import click

from cer_gpu.cli.command_line import show_text, to_json
from cer_gpu.cli.event_arguments import parse_streams
from cer_gpu.cli.query_arguments import WrongQueries, for_each, read_queries
from cer_gpu.cli.shared_options import QueryOptions, complete_files, query_argument, query_options, reading_options
from cer_gpu.explain.explanation import Explanation
from cer_gpu.io.sinks import check_target, naming, result_file
from cer_gpu.io.text_options import TextOptions


@click.command(
    "explain",
    epilog="""\b
Examples:
  cer-gpu explain late.ceql --time-column ts
  cer-gpu explain 'SELECT * FROM S WHERE A ; B+ ; C' --svg automaton.svg
  cer-gpu explain late.ceql flights.parquet --analyze --time-column ts
  cer-gpu explain late.ceql --time-column ts --all
  cer-gpu explain late.ceql --time-column ts --passes
  cer-gpu explain late.ceql --time-column ts --json""",
)
@query_argument
@click.argument("events", nargs=-1, metavar="[EVENTS]...", shell_complete=complete_files)
@click.option(
    "--events",
    "more_events",
    multiple=True,
    metavar="FILE",
    shell_complete=complete_files,
    help="Same as EVENTS; may be repeated; NAME=PATH for several streams.",
)
@click.option("--analyze", is_flag=True, help="Run the query on the events and measure its stages.")
@click.option("--plan", "detail", flag_value="plan", help="Also show model, predicates, plan and properties.")
@click.option("--automaton", "detail", flag_value="automaton", help="Also show the automaton.")
@click.option("--all", "detail", flag_value="all", help="Also show the plan and the automaton.")
@click.option("--svg", metavar="FILE", shell_complete=complete_files, help="Draw the automaton as SVG.")
@click.option("--dot", metavar="FILE", shell_complete=complete_files, help="Write the automaton for Graphviz.")
@click.option("--passes", is_flag=True, help="Print only the compilation passes, and what each did.")
@query_options
@reading_options
@click.option("--json", "as_json", is_flag=True, help="Print the explanation as JSON.")
def explain_command(
    query: str,
    events: tuple[str, ...],
    more_events: tuple[str, ...],
    analyze: bool,
    detail: str | None,
    svg: str | None,
    dot: str | None,
    passes: bool,
    compiling: QueryOptions,
    reading: TextOptions,
    as_json: bool,
) -> int:
    """Explain what QUERY means and how it runs.

    Shows the query in words, the columns that it reads, and what memory and time it needs. With EVENTS, counts the
    events that satisfy each predicate.
    """
    events += more_events
    if analyze and not events:
        raise click.UsageError("--analyze runs the query on events: cer-gpu explain QUERY EVENTS --analyze")
    streams = parse_streams(events, reading)
    arguments = read_queries(query, None, compiling)
    arguments.refuse_options_of_ceql()
    inputs = [*streams.paths, *arguments.files]
    drawn = (Explanation.to_svg, svg), (Explanation.to_dot, dot)
    pictures = [(draw, Path(path)) for draw, path in drawn if path is not None]
    for _, path in pictures:
        check_target(path, inputs)
    try:
        compiled = arguments.compile(streams)
        (explanation,) = for_each(
            compiled,
            lambda each: each.explain(streams.open() if events else None, analyze=analyze, detail=detail or "summary"),
        ).values()
    except WrongQueries as wrong:
        arguments.say(wrong.errors)
        return 1
    for draw, path in pictures:
        with result_file(path, inputs) as file, naming(str(path)):
            file.write(draw(explanation).encode())
    text = "\n".join(explanation.passes) if passes else str(explanation)
    show_text(to_json(explanation.to_dict()) if as_json else text)
    return 0
