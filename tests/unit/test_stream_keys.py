"""Keys: readable by their owner alone, never in a message or a repr, refused when damaged."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.stream.keys import (
    Invitation,
    make_session_keys,
    parse_invitation,
    read_hub_keys,
    read_invitation,
    write_invitation,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_key_file_comes_back_and_is_its_owners_alone(tmp_path: Path) -> None:
    """What was written is read, and the file has mode 0600 whatever the umask says."""
    invitation = Invitation("tcp://node1:5000", make_session_keys().viewer)
    old_mask = os.umask(0)
    try:
        write_invitation(tmp_path / "key", invitation)
    finally:
        os.umask(old_mask)
    assert 0o600 == (tmp_path / "key").stat().st_mode & 0o777
    assert invitation == read_invitation(tmp_path / "key")


def test_a_key_is_written_over_nothing(tmp_path: Path) -> None:
    """Neither over a file nor through a link, not even one that leads nowhere."""
    invitation = Invitation("tcp://node1:5000", make_session_keys().viewer)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("file", "link"):
        with pytest.raises(TuiadvisorError, match="exists already"):
            write_invitation(tmp_path / name, invitation)
    assert "mine" == (tmp_path / "file").read_text()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610])
def test_a_key_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    """One line that says what to do."""
    write_invitation(tmp_path / "key", Invitation("tcp://node1:5000", make_session_keys().viewer))
    (tmp_path / "key").chmod(mode)
    with pytest.raises(TuiadvisorError, match="chmod 600"):
        read_invitation(tmp_path / "key")


def test_pipes_and_folders_are_no_key_files(tmp_path: Path) -> None:
    """A pipe that nobody writes to does not make us wait."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(TuiadvisorError, match=r"only you can read|cannot be read"):
            read_invitation(path)


def test_secrets_are_in_no_repr() -> None:
    """A key that lands in a log or a traceback shows its public half only."""
    keys = make_session_keys()
    shown = repr(keys) + repr(Invitation("tcp://node1:5000", keys.agent))
    assert [] == [s for s in (keys.hub.secret, keys.agent.secret, keys.viewer.secret) if s in shown]


def test_each_session_has_keys_of_its_own() -> None:
    """Two sessions share nothing, and agent and viewer are different peers."""
    one, other = make_session_keys(), make_session_keys()
    publics = {k for keys in (one, other) for k in (keys.hub.public, keys.agent.public, keys.viewer.public)}
    assert 6 == len(publics)


def test_agents_that_can_have_their_own_keys_have_them() -> None:
    """Three agents: three keys, all admitted by the one hub, none of them a viewer's."""
    keys = make_session_keys(3)
    assert 3 == len({agent.secret for agent in keys.agents})
    assert tuple(agent.public for agent in keys.agents) == keys.hub.agents
    assert {keys.hub.public} == {agent.hub for agent in keys.agents}
    assert not {agent.public for agent in keys.agents} & set(keys.hub.viewers)


def test_a_damaged_key_is_not_repeated_in_the_message() -> None:
    """The line names where the key came from, never its content."""
    secret = make_session_keys().agent.secret
    data = orjson.dumps(
        {"url": "tcp://n:1", "key": {"hub": secret, "public": secret, "secret": secret + "x"}}
    )
    with pytest.raises(TuiadvisorError, match="damaged") as caught:
        parse_invitation(data, "key")
    assert secret not in str(caught.value)


NAMES = st.sampled_from(["url", "key", "hub", "public", "secret", "agents", "viewers"])
DOCUMENTS = st.recursive(
    st.none() | st.text() | st.integers(-5, 5), lambda one: st.lists(one) | st.dictionaries(NAMES, one)
)


@pytest.mark.slow
@given(st.binary(max_size=200) | DOCUMENTS.map(orjson.dumps))
def test_other_documents_are_refused_in_one_line(data: bytes) -> None:
    """Random bytes and random JSON give an address without a key, or one line; never the keys of a hub."""
    message, key = "", None
    try:
        key = parse_invitation(data, "key").key
    except TuiadvisorError as error:
        message = str(error)
    assert (None, 0) == (key, message.count("\n"))
    with pytest.raises(TuiadvisorError):
        read_hub_keys(io.BytesIO(data.replace(b"\n", b" ")))
