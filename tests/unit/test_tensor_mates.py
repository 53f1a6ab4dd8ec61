"""Late ranks of one tensor parallel group: who holds up whom."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tuiadvisor.causes.straggler import OUTSIDE, outside_words
from tuiadvisor.causes.tensor_mates import is_one_group, tensor_groups, waits_for
from tuiadvisor.views.efficiency import Stack


@pytest.mark.parametrize(
    ("mesh", "num_ranks", "groups"),
    [
        ("dp=2 tp=2", 4, [(0, 1), (2, 3)]),
        ("tp=2 dp=2", 4, [(0, 2), (1, 3)]),
        ("dp=2 TP=2 cp=2", 8, [(0, 2), (1, 3), (4, 6), (5, 7)]),
        ("dp=2 tp=2", 8, []),  # the other four ranks were not seen, or belong to no mesh
        ("dp=4", 4, []),
        ("tp=1 dp=4", 4, []),
        ("tp=x", 4, []),
        ("", 4, []),
    ],
)
def test_groups_follow_the_mesh(mesh: str, num_ranks: int, groups: list[tuple[int, ...]]) -> None:
    """Its last dimension is filled first."""
    assert groups == tensor_groups(mesh, num_ranks)


def late(
    rank: int,
    off_core: str | None = None,
    name: str = "host",
    more: object = None,
    is_open: bool = False,
    *,
    parts: dict[str, float] | None = None,
) -> SimpleNamespace:
    """A late rank."""
    cause = SimpleNamespace(
        off_core=off_core, name=name, more=more, is_collecting=False, is_open=is_open, parts=parts or {}
    )
    return SimpleNamespace(rank=rank, cause=cause)


def test_who_is_late_beside_a_stopped_rank_of_its_group_waits_for_it() -> None:
    """Not beside one of another group, and not with a reason of its own."""
    groups = [(0, 1), (2, 3)]
    stopped, beside, other = late(1, "stopped"), late(0), late(2)
    everyone = [beside, stopped, other]
    assert stopped is waits_for(beside, everyone, groups)
    assert waits_for(other, everyone, groups) is None
    assert waits_for(stopped, everyone, groups) is None
    assert waits_for(beside, [beside, other], groups) is None
    assert waits_for(beside, everyone, []) is None
    for own in (late(0, "core"), late(0, name="data_wait"), late(0, name="forward", more=object())):
        assert waits_for(own, [own, stopped], groups) is None


def test_who_is_late_beside_a_rank_that_may_lack_a_core_is_not_named_before_it() -> None:
    """Too soon to name that one is too soon to name its group; another group's rank is no reason to wait."""
    groups = [(0, 1), (2, 3)]
    perhaps, beside, other = late(1, is_open=True), late(0), late(2)
    everyone = [beside, perhaps, other]
    assert perhaps is waits_for(beside, everyone, groups)
    assert waits_for(other, everyone, groups) is None


def test_a_group_that_is_late_together_may_be_held_up_by_one() -> None:
    """Ranks of two groups are not."""
    groups = [(0, 1), (2, 3)]
    assert is_one_group((0, 1), groups)
    assert not is_one_group((0, 2), groups)
    assert not is_one_group((1,), groups)


def test_ranks_that_hold_different_parts_of_the_model_may_be_late_for_that() -> None:
    """As the stages of DeepSpeed's pipeline, which no hook tells of."""
    assert "the part of the model that it holds" in outside_words(Stack({}, ("conv", "head", "modules")), "")
    assert OUTSIDE == outside_words(Stack({"input": "4x8"}, ("threads",)), "")
    assert OUTSIDE == outside_words(None, "")


def test_who_is_late_in_forward_and_backward_alone_waits_for_its_mate_that_is_late_elsewhere_too() -> None:
    """A slow device is slow in its optimizer, a late batch is late in data; who meets it in its layers is neither."""
    groups = [(0, 1), (2, 3)]
    beside = late(0, name="backward", parts={"forward": 0.005, "backward": 0.011, "optimizer": 0.0})
    slow = late(1, name="device", parts={"forward": 0.005, "backward": 0.010, "optimizer": 0.0012})
    starved = late(1, name="data_wait", parts={"data_wait": 0.016})
    alike = late(0, name="device", parts={"forward": 0.005, "backward": 0.010, "optimizer": 0.0011})

    assert slow is waits_for(beside, [beside, slow], groups)
    assert starved is waits_for(beside, [beside, starved], groups)
    assert waits_for(slow, [beside, slow], groups) is None
    assert waits_for(alike, [alike, slow], groups) is None  # both are slow
    assert waits_for(late(2, parts=beside.cause.parts), [slow], groups) is None
