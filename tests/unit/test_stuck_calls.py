"""Who hangs in which collective, from what each rank says of itself; and what of that is believed."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from tuiadvisor.agent.discovery import RankProcess
from tuiadvisor.agent.payload import standalone_code
from tuiadvisor.agent.stacks import parse_spy, parse_told
from tuiadvisor.metrics.hang.sequence_numbers import GroupPlace, RankPlace, in_words, stuck_calls
from tuiadvisor_probes import stuck


def place(rank: int, seq: int, call: str | None, group: str | None = None, **more: int) -> RankPlace:
    """A rank of two in group 0; more: sequence numbers of other groups of the same two."""
    groups = tuple(GroupPlace(name, "", (0, 1), number) for name, number in {"0": seq, **more}.items())
    return RankPlace(rank, call, group, groups, (), None)


def words(*places: RankPlace) -> list[str]:
    """What is said of them."""
    return [in_words(call) for call in stuck_calls(places)]


def test_the_rank_that_has_not_come_is_named() -> None:
    """Its own number says that it is behind, the other one's call in which collective it is missed."""
    assert ["rank 0 waits in all_reduce of group 0, sequence 12; rank 1 has not entered it"] == words(
        place(0, 12, "all_reduce", "0"), place(1, 11, None)
    )


def test_the_first_collective_that_is_missed_counts() -> None:
    """A rank that issued three ahead waits for the first of them."""
    (call,) = stuck_calls([place(0, 15, "wait"), place(1, 12, None)])
    assert (13, (1,)) == (call.seq, call.missing)


def test_what_is_not_known_to_be_this_collective_is_not_called_so() -> None:
    """A handle's wait may be a message's: entered is a fact, waiting in it is not."""
    assert [
        "rank 0 has entered sequence 12 of group 0 and stands in wait; rank 1 has not entered it"
    ] == words(place(0, 12, "wait"), place(1, 11, None))
    assert ["rank 0 has entered sequence 12 of group 0; rank 1 has not entered it"] == words(
        place(0, 12, None), place(1, 11, None)
    )


def test_a_group_it_is_not_in_accuses_nobody() -> None:
    """The call says its group; that the others' numbers differ as well follows from it."""
    found = stuck_calls([place(0, 12, "all_reduce", "tp", tp=7), place(1, 11, None, tp=6)])
    assert [("tp", (1,))] == [(call.group, call.missing) for call in found]


@pytest.mark.parametrize("call", ["recv", "send", "batch_isend_irecv"])
def test_messages_are_no_collectives(call: str) -> None:
    """Both in a message at the same number: nothing is said of a collective."""
    assert [] == words(place(0, 12, call, "0"), place(1, 12, call, "0"))


def test_all_in_it_means_nobody_is_behind() -> None:
    """Only where every member is in it."""
    (sentence,) = words(place(0, 12, "all_reduce", "0"), place(1, 12, "all_reduce", "0"))
    assert sentence.startswith("ranks 0, 1 wait in all_reduce of group 0, sequence 12; nobody is behind")
    assert [] == words(place(0, 12, "all_reduce", "0"), place(1, 12, None))


def test_who_was_not_asked_is_not_accused() -> None:
    """A member of the group of which nothing was read."""
    assert ["rank 0 waits in barrier of group 0, sequence 3; rank 1 could not be asked"] == words(
        place(0, 3, "barrier", "0")
    )


def test_who_is_stopped_is_said_to_be() -> None:
    """It cannot be asked, but that much shows from outside."""
    (call,) = stuck_calls([place(0, 3, "barrier", "0")])
    assert in_words(call, {1}).endswith("sequence 3; rank 1 is stopped")


def test_a_chain_of_waiting_names_its_cause_first() -> None:
    """Rank 2 waits for 1 in one group, 1 for 0 in another: 0 is the one to look at."""
    places = [
        RankPlace(0, None, None, (GroupPlace("a", "", (0, 1), 4),), (), None),
        RankPlace(
            1, "all_reduce", "a", (GroupPlace("a", "", (0, 1), 5), GroupPlace("b", "", (1, 2), 8)), (), None
        ),
        RankPlace(2, "all_reduce", "b", (GroupPlace("b", "", (1, 2), 9),), (), None),
    ]
    assert [("a", (0,)), ("b", (1,))] == [(call.group, call.missing) for call in stuck_calls(places)]


PROCESS = RankProcess(7, 1, 0, 0, 3, 3, 4, 4, "", "", None, None, None, None, "")


@pytest.mark.parametrize(
    "raw",
    [b"", b"nonsense", b"[]", b'{"call": 3, "groups": 7, "stack": {}, "rank": "1", "call_group": []}',
     b'{"groups": [3, {"name": "0", "members": 1, "seq": 2}, {"name": "0", "members": [0], "seq": -2}]}'],
)  # fmt: skip
def test_a_strange_answer_says_nothing(raw: bytes) -> None:
    """The file is written by a stranger's process."""
    told = parse_told(raw, PROCESS, "S")
    assert (3, None, None, (), ()) == (told.rank, told.call, told.call_group, told.groups, told.stack)


def test_an_answer_cannot_drive_a_terminal() -> None:
    """Control characters are replaced, in every text."""
    raw = orjson.dumps(
        {"call": "a\x1b[2J", "stack": ["f\x07"], "groups": [{"name": "\n", "members": [0, 1], "seq": 4}]}
    )
    told = parse_told(raw, PROCESS, "S")
    assert ("a?[2J", ("f?",), "?") == (told.call, told.stack, told.groups[0].name)


@pytest.mark.parametrize("raw", [b"", b"nonsense", b"{}", b"[3]", b'[{"os_thread_id": 7, "frames": {}}]'])
def test_a_strange_dump_has_no_frames(raw: bytes) -> None:
    """Whatever the program called py-spy prints."""
    assert () == parse_spy(raw, 7)


def test_the_training_thread_is_taken_from_a_dump() -> None:
    """By its id; C functions by their library, Python's by file and line, the importer's own left out."""
    frames = [
        {"name": "futex", "filename": "", "short_filename": None, "module": "/usr/lib/libc.so.6", "line": 0},
        {"name": "_find_and_load", "filename": "<frozen importlib._bootstrap>", "line": 9},
        {"name": "train", "filename": "/home/me/train.py", "short_filename": "train.py", "line": 8},
    ]
    dump = [{"os_thread_id": 9, "frames": []}, {"os_thread_id": 7, "frames": frames}]
    assert ("futex (/usr/lib/libc.so.6)", "train (train.py:8)") == parse_spy(orjson.dumps(dump), 7)


class Handle:
    """Keeps the frame that calls it."""

    def wait(self, _timeout: object = None) -> str | None:
        """As a method of C, it has no frame of its own: the caller's is looked at."""
        return stuck.called_method(stuck.sys._getframe(1))

    query = wait
    attribute = 3


def by_wait(handle: Handle) -> str | None:
    """A plain call."""
    return handle.wait()


def by_query(handle: Handle) -> str | None:
    """Another method, after a wait that is over."""
    handle.wait()
    return handle.query(None)


def by_name(handle: Handle) -> str | None:
    """Not called as a method."""
    wait = handle.wait
    return wait(handle.attribute)


@pytest.mark.parametrize(("call", "name"), [(by_wait, "wait"), (by_query, "query"), (by_name, "attribute")])
def test_the_method_in_progress_is_read_from_the_code(
    call: Callable[[Handle], str | None], name: str
) -> None:
    """Of the call a frame is in, and not of one before it; a strange form at worst reads as no wait."""
    assert name == call(Handle())


def test_only_standalone_modules_run_alone() -> None:
    """Code for another module is never made."""
    compile(standalone_code("stuck", "report('/x')"), "stuck", "exec")
    with pytest.raises(ValueError, match="install"):
        standalone_code("install", "install()")
