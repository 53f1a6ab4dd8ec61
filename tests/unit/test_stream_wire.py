"""Nothing leaves this machine, nothing of the user's is replaced, and messages are what they say."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.stream.frames import FrameError
from tuiadvisor.stream.wire import (
    Reply,
    Request,
    check_endpoint,
    prepare_socket_path,
    unpack_reply,
    unpack_request,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "endpoint",
    ["ipc:///run/user/1/tuiadvisor/agent", "tcp://127.0.0.1:*", "tcp://127.0.0.1:5555", "tcp://[::1]:1"],
)
def test_loopback_and_ipc_are_allowed(endpoint: str) -> None:
    """Addresses that stay on this machine come back as they are."""
    assert endpoint == check_endpoint(endpoint)


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://0.0.0.0:5555",
        "tcp://*:5555",
        "tcp://10.0.0.1:5555",
        "tcp://127.0.0.1.evil.example:5555",
        "tcp://localhost:5555",
        "tcp://eth0:1",
    ],
)
def test_other_machines_need_a_key(endpoint: str) -> None:
    """One line that says why, and what to do; with a key the address is allowed."""
    with pytest.raises(TuiadvisorError, match=r"encrypted.*--key FILE.*ssh tunnel"):
        check_endpoint(endpoint)
    assert endpoint == check_endpoint(endpoint, has_key=True)


@pytest.mark.parametrize("has_key", [False, True])
@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://127.0.0.1:5555;tcp://0.0.0.0:1",
        "udp://127.0.0.1:1",
        "inproc://x",
        "",
        "tcp://-x:1",
        "tcp://a b:1",
    ],
)
def test_what_is_no_address_is_refused_with_a_key_too(endpoint: str, *, has_key: bool) -> None:
    """Other transports and several addresses in one: no key opens them."""
    with pytest.raises(TuiadvisorError, match="not an address"):
        check_endpoint(endpoint, has_key=has_key)


@pytest.mark.parametrize("endpoint", ["ipc://@abstract", "ipc://relative", "ipc:///" + "a" * 200])
def test_sockets_without_owner_or_room_are_refused(endpoint: str) -> None:
    """Abstract sockets have no permissions, long paths are cut by the kernel: both are refused."""
    with pytest.raises(TuiadvisorError, match=r"ipc://|shorter"):
        check_endpoint(endpoint)


def test_a_socket_folder_is_the_owners_alone(tmp_path: Path) -> None:
    """A missing folder is made 0700; one that others may enter is refused."""
    prepare_socket_path(f"ipc://{tmp_path}/new/agent")
    assert 0o700 == (tmp_path / "new").stat().st_mode & 0o777
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(TuiadvisorError, match="chmod 700"):
        prepare_socket_path(f"ipc://{tmp_path}/open/agent")


def test_no_file_of_the_user_is_removed(tmp_path: Path) -> None:
    """A file at the endpoint stays; a socket that somebody answers on stays; a dead socket goes."""
    tmp_path.chmod(0o700)
    path = tmp_path / "s"
    path.write_text("mine")
    with pytest.raises(TuiadvisorError, match="no socket"):
        prepare_socket_path(f"ipc://{path}")
    assert "mine" == path.read_text()
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        with pytest.raises(TuiadvisorError, match="already"):
            prepare_socket_path(f"ipc://{path}")
    prepare_socket_path(f"ipc://{path}")
    assert not path.exists()


U64 = st.integers(0, (1 << 64) - 1)


@given(U64, U64, st.integers(0, (1 << 62) - 1), st.integers(0, (1 << 32) - 1))
def test_requests_come_back_bounded(request: int, session: int, offset: int, max_bytes: int) -> None:
    """A request survives the wire; nobody gets more than four MiB at once."""
    found = unpack_request([Request(request, session, offset, max_bytes).pack()])
    assert Request(request, session, offset, min(max_bytes, 4 << 20)) == found


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_other_messages_are_refused(parts: list[bytes]) -> None:
    """Random parts are neither a request nor a reply."""
    with pytest.raises(FrameError):
        unpack_request(parts)
    with pytest.raises(FrameError):
        unpack_reply(parts)


def test_replies_come_back_without_control_characters() -> None:
    """A reply survives the wire; its note cannot steer a terminal."""
    reply = Reply(1, 2, 16, 99, is_ending=True, data=b"frames", note="disk\x1b[2J full")
    found = unpack_reply(reply.pack())
    assert Reply(1, 2, 16, 99, is_ending=True, data=b"frames", note="disk[2J full") == found
