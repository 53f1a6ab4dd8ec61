"""What says how to measure: code is what can be pasted, and words are words."""

from __future__ import annotations

import pytest

from tuiadvisor.markdown import with_commands


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("record across two checkpoints", "record across two checkpoints"),
        ("parameters tell the FLOPs of transformers alone", "parameters tell the FLOPs of transformers alone"),
        ("tuiadvisor record --for 60s -o run.tuirec", "`tuiadvisor record --for 60s -o run.tuirec`"),
        (
            "tuiadvisor watch  (key 2, then a: by host), or: mpstat -P ALL 1 10",
            "`tuiadvisor watch`  (key 2, then a: by host), or: `mpstat -P ALL 1 10`",
        ),
        (
            "iostat -x 1 10, beside fio --name=read --runtime=30",
            "`iostat -x 1 10`, beside `fio --name=read --runtime=30`",
        ),
        ("python -c 'import torch; print(1)'  inside it", "`python -c 'import torch; print(1)'`  inside it"),
        ("TORCH_LOGS=recompiles python train.py | grep -c R", "`TORCH_LOGS=recompiles python train.py | grep -c R`"),
        ("salary; or tuiadvisor intent --set price=9", "salary; or `tuiadvisor intent --set price=9`"),
        ("tuiadvisor stacks 2 --lines  # on node1", "`tuiadvisor stacks 2 --lines  # on node1`"),
        ("squeue --start, or the reservation's end date", "`squeue --start`, or the reservation's end date"),
        ("<b>, `rm`", "\\<b\\>, \\`rm\\`"),
    ],
)  # fmt: skip
def test_only_what_can_be_pasted_is_code(text: str, shown: str) -> None:
    """The session had prose in ticks, as if it were a command."""
    assert shown == with_commands(text)
