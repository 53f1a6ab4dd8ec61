"""An option that no command has is told with the help of the command that was typed."""

from __future__ import annotations

import pytest

from tuiadvisor.cli.commands import build_parser


@pytest.mark.parametrize(
    ("typed", "prog"),
    [
        (["scale", "--table", "sizes.csv", "--devices", "64"], "tuiadvisor scale"),
        (["replay", "run.tuirec", "--quickly"], "tuiadvisor replay"),
    ],
)
def test_the_help_named_is_that_of_the_command(
    typed: list[str], prog: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said "tuiadvisor --help shows what there is", where the command's options are not."""
    with pytest.raises(SystemExit) as ended:
        build_parser(typed[0]).parse_args(typed)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{prog}: unrecognized arguments: --")
    assert said.endswith(f"{prog} --help shows what there is\n")
