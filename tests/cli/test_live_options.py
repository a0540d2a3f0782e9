"""Options of a folder of files, which live runs and jobs share."""

import click
from click.testing import CliRunner

from cer_gpu.cli.live.follow_options import follow_options, live_folder_options


def given(arguments):
    """Return the options of a folder that a command gets."""

    @click.command()
    @live_folder_options
    def command(of_files):
        click.echo(repr(of_files))

    return CliRunner().invoke(command, arguments).output.strip()


def test_no_seconds_of_settling_are_an_option_that_was_given():
    assert given(["--settle", "0"]) == "{'settle': 0.0}"
    assert given(["--order", "name", "--skip-unreadable"]) == "{'order': 'name', 'skip_unreadable': True}"
    assert given([]) == "{}"


def test_options_of_a_folder_need_the_folder():
    @click.command()
    @follow_options
    def command(live):
        click.echo(repr(live.settle))

    assert CliRunner().invoke(command, ["--follow", "x", "--settle", "0"]).output == "0.0\n"
    assert "--settle is an option of --follow DIR" in CliRunner().invoke(command, ["--settle", "0"]).output
