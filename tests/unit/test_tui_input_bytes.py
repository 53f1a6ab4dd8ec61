"""Whatever bytes come in, the screens go on: a pasted binary is a paste, and its letters are no keys."""

from __future__ import annotations

import os
from threading import Event
from types import SimpleNamespace

from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key, Paste
from textual.message import Message

from tuiadvisor.tui.terminal.frame_writer import WireApp


def test_a_pasted_binary_is_a_paste_and_ends_nothing() -> None:
    WireApp()
    came: list[Message] = []
    is_over = Event()

    def take(message: Message) -> None:
        came.append(message)
        if isinstance(message, Key):
            is_over.set()

    reading, writing = os.pipe()
    try:
        os.write(writing, b"\x1b[200~\xbe\xffq\x80\x1b[201~x")
        driver = SimpleNamespace(fileno=reading, _debug=False, exit_event=is_over, process_message=take)
        os.set_blocking(reading, False)
        os.close(writing)
        LinuxDriver.run_input_thread(driver)  # type: ignore[arg-type]
    finally:
        os.close(reading)
    assert [message.text for message in came if isinstance(message, Paste)] == ["\ufffd\ufffdq\ufffd"]
    assert [message.key for message in came if isinstance(message, Key)] == ["x"]
