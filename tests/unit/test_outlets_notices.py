"""Findings as notices: each piece of news once, whatever flickers, to receivers that may be slow or gone."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, cast

import psutil
import pytest
from patience import PATIENCE_S, wait_until
from synthetic_run import MS, Fault, Job, final_view

from tuiadvisor.cli.options.outlets import add_outlets, outlets_of
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.outlets import delivery
from tuiadvisor.outlets.delivery import CommandReceiver, Delivery, WebhookReceiver, slack_text
from tuiadvisor.outlets.notices import GONE_S, SETTLE_S, Notice, Notices
from tuiadvisor.views.run_view import RunView

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "prometheus.md"
SECRET = "T0/B0/verysecret"


@pytest.fixture(scope="module")
def late() -> RunView:
    """With one finding above info."""
    view = final_view(Job(num_ranks=4).with_faults(Fault("backward", (2,), 8 * MS)))
    worst = view.findings[0]
    assert worst.severity == "critical"
    return replace(view, findings=(worst,))


def with_severity(view: RunView, severity: str) -> RunView:
    """The same finding, more or less severe."""
    return replace(view, findings=tuple(replace(one, severity=severity) for one in view.findings))


def test_each_piece_of_news_is_told_once(late: RunView) -> None:
    notices, calm = Notices(), replace(late, findings=())
    told = []
    sequence = [
        (late, 0.0),
        (late, SETTLE_S),
        (late, SETTLE_S + 1),
        (with_severity(late, "warning"), 20.0),
        (with_severity(late, "warning"), 20.0 + SETTLE_S),
        (with_severity(late, "warning"), 20.0 + GONE_S),
        (with_severity(late, "warning"), 31.0),
        (calm, 32.0),
        (calm, 31.0 + GONE_S),
        (calm, 60.0),
    ]
    for view, now_s in sequence:
        told += [(now_s, notice.event, notice.was) for notice in notices.look(view, now_s)]
    assert told == [
        (SETTLE_S, "opened", None),
        (20.0 + GONE_S, "changed", "critical"),
        (31.0 + GONE_S, "closed", "warning"),
    ]


def test_what_becomes_worse_is_told_sooner_than_what_becomes_better(late: RunView) -> None:
    # A rank at the limit of two severities, as one was seen to be told "warning" and, 2.9 s later, "critical" again.
    notices, warning = Notices(), with_severity(late, "warning")
    told = [
        (now_s, one.event, one.finding.severity)
        for now_s in range(60)
        for one in notices.look(
            late if (now_s < 20 and now_s % 6 < 2) or now_s >= 40 else warning, float(now_s)
        )
    ]
    assert told == [(4.0, "opened", "warning"), (40.0 + SETTLE_S, "changed", "critical")]
    told = [
        (now_s, one.event, one.finding.severity)
        for now_s in range(60, 120)
        for one in notices.look(warning if now_s % 9 < 8 else late, float(now_s))
    ]
    assert told == []


def of_ranks(view: RunView, *ranks: int, subject: str = "") -> RunView:
    """The same finding of other ranks."""
    return replace(view, findings=tuple(replace(one, ranks=ranks, subject=subject) for one in view.findings))


def test_of_more_ranks_it_is_told_anew_and_of_fewer_it_goes_on(late: RunView) -> None:
    """With each rank that joined it was told to be over, and to have opened."""
    notices, told = Notices(), []
    last_s = 4 * GONE_S
    for now_s in range(int(last_s)):
        ranks = ((2,), (2, 3), (2,))[min(int(now_s / GONE_S), 2)]
        told += [(each.event, each.finding.ranks) for each in notices.look(of_ranks(late, *ranks), now_s)]
    assert told == [("opened", (2,)), ("opened", (2, 3))]
    calm = replace(late, findings=())
    told = [(each.event, each.finding.ranks) for each in notices.look(calm, last_s + GONE_S)]
    assert told == [("closed", (2,))]


def test_two_findings_of_one_rule_and_the_same_ranks_are_two(late: RunView) -> None:
    """Only the last of them was told, as the two had one key."""
    both = [of_ranks(late, 0, subject=subject).findings[0] for subject in ("evaluation", "periodic")]
    notices = Notices()
    told = [
        (each.event, each.finding.subject)
        for findings, now_s in ((both, 0.0), (both, SETTLE_S), (both[:1], 99.0), (both[:1], 99.0 + GONE_S))
        for each in notices.look(replace(late, findings=tuple(findings)), now_s)
    ]
    assert [("opened", "evaluation"), ("opened", "periodic"), ("closed", "periodic")] == told


def test_labels_of_ones_own_are_in_each_notice(late: RunView) -> None:
    notices = Notices((("run", "exp42"),))
    notices.look(late, 0.0)
    (notice,) = notices.look(late, SETTLE_S)
    assert notice.document()["labels"] == {"run": "exp42"}
    assert "run=exp42" in slack_text(notice)
    assert replace(notice, labels=()).document()["labels"] == {}


def test_the_page_shows_a_notice_as_it_is(late: RunView) -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    shown, told = json.loads(block), Notice("opened", late.findings[0], None, late).document()
    assert list(shown) == list(told)
    for part in ("finding", "verdict"):
        assert list(shown[part]) == list(json.loads(json.dumps(told[part])))


def test_what_flickers_is_no_news(late: RunView) -> None:
    notices, calm = Notices(), replace(late, findings=())
    assert [
        one for k in range(40) for one in notices.look(late if k % 2 else calm, k * (SETTLE_S / 2 + GONE_S))
    ] == []
    opened = Notices()
    events = [one.event for k in range(60) for one in opened.look(calm if k % 5 == 4 else late, k * 1.0)]
    assert events == ["opened"]


def test_a_remark_is_no_news(late: RunView) -> None:
    notices = Notices()
    assert [one for k in range(9) for one in notices.look(with_severity(late, "info"), 1.0 * k)] == []


def news(late: RunView) -> Notice:
    """One opened finding."""
    return Notice("opened", late.findings[0], None, late)


def test_a_command_gets_it_as_json_and_without_a_shell(late: RunView, tmp_path: Path) -> None:
    script = tmp_path / "tell.py"
    script.write_text(
        "import json, os, pathlib, sys\n"
        "(line,) = sys.stdin.buffer.read().split(b'\\n')[:-1]  # whole lines: what a shell's `read` takes, or a log\n"
        "told = json.loads(line), os.environ['TUIADVISOR_EVENT'], sys.argv[2]\n"
        "pathlib.Path(sys.argv[1]).write_text(json.dumps(told))\n"
    )
    out = tmp_path / "out put.json"
    receiver = CommandReceiver(f"{sys.executable} {script} '{out}' '$(touch x);`id`'")
    assert receiver.deliver(news(late)) == ""
    document, event, argument = json.loads(out.read_text())
    assert (event, argument) == ("opened", "$(touch x);`id`")
    assert document == json.loads(json.dumps(news(late).document()))
    assert (document["finding"]["ranks"], document["verdict"]["decision"]) == ([2], "tune")


def test_a_command_that_fails_is_said(late: RunView) -> None:
    assert CommandReceiver(f"{sys.executable} -c 'raise SystemExit(3)'").deliver(news(late)) == "exit code 3"
    worker = Delivery([CommandReceiver(f"{sys.executable} -c 'raise SystemExit(3)'")])
    worker.add(news(late))
    worker.add(news(late))
    assert worker.close() == [f"--on-finding {sys.executable}: exit code 3 (2x)"]


@pytest.mark.parametrize("words", ["", "   ", "'open", "/no/such/program x"])
def test_what_is_no_command_is_refused_before_anything_starts(words: str) -> None:
    with pytest.raises(TuiadvisorError, match="--on-finding"):
        CommandReceiver(words)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/x",
        "file:///etc/passwd",
        "https:///x",
        "http://host:99999/",
        "http://h/a b",
        "http://[::1",
    ],
)
def test_what_is_no_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(TuiadvisorError) as caught:
        WebhookReceiver(url, "json")
    assert url not in str(caught.value)


class Hook(BaseHTTPRequestHandler):
    """Answers as told, keeps what it got."""

    answers: ClassVar[list[int]] = []
    bodies: ClassVar[list[tuple[str, bytes]]] = []

    def do_POST(self) -> None:
        """One notice."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.bodies.append((self.path, body))
        code = self.answers.pop(0) if self.answers else 200
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def hook() -> Iterator[str]:
    """The URL of a receiver."""
    Hook.answers.clear()
    Hook.bodies.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/{SECRET}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_webhook_gets_json_or_a_text(late: RunView, hook: str) -> None:
    assert WebhookReceiver(hook, "json").deliver(news(late)) == ""
    assert WebhookReceiver(hook, "slack").deliver(news(late)) == ""
    (_, document), (_, text) = Hook.bodies
    assert json.loads(document)["event"] == "opened"
    assert json.loads(text) == {"text": news(late).text()}
    assert "critical: The others wait" in news(late).text()


def test_a_webhook_is_tried_again_and_does_not_follow(
    late: RunView, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "PAUSES_S", (0.01, 0.01))
    Hook.answers += [500, 503]
    assert WebhookReceiver(hook, "json").deliver(news(late)) == ""
    assert len(Hook.bodies) == 3
    Hook.answers += [302, 302, 302]
    assert WebhookReceiver(hook, "json").deliver(news(late)) == "answered 302"
    assert {path for path, _ in Hook.bodies} == {f"/{SECRET}"}


def test_the_secret_of_a_url_is_in_no_line(late: RunView) -> None:
    worker = Delivery([WebhookReceiver(f"http://127.0.0.1:9/{SECRET}?key=k1#f", "json")])
    worker.add(news(late))
    (line,) = worker.close()
    assert "http://127.0.0.1" in line
    assert not any(word in line for word in ("verysecret", "k1", ":9"))


def test_a_user_in_the_url_is_refused_without_repeating_it(late: RunView) -> None:
    """Urllib would take it for the name of a host, fail at each notice, and say it in a traceback."""
    with pytest.raises(TuiadvisorError, match="user or password") as found:
        WebhookReceiver(f"https://me:{SECRET[-10:]}@hooks.example.com/x", "json")
    assert SECRET[-10:] not in str(found.value)


@pytest.mark.parametrize("answer", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n"])
def test_a_receiver_that_speaks_no_http_is_tried_again_and_said(
    late: RunView, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "PAUSES_S", (0.0, 0.0))
    asked = []

    def serve(listening: socket.socket) -> None:
        for _ in range(3):
            connection, _address = listening.accept()
            with connection:
                asked.append(connection.recv(1 << 16))
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/{SECRET}"
        why = WebhookReceiver(url, "json").deliver(Notice("opened", late.findings[0], None, late))
        thread.join(PATIENCE_S)
    assert (why, len(asked)) == ("no answer in HTTP", 3)


def test_a_jobs_name_is_no_mark_up_in_slack(late: RunView) -> None:
    """It is somebody else's words: it calls no channel, and makes no second line."""
    named = replace(late, run=replace(late.run, label="<!channel>\n<https://example.com|log in> & co"))
    text = slack_text(Notice("opened", late.findings[0], None, named))
    assert text.startswith("&lt;!channel&gt;?&lt;https://example.com|log in&gt; &amp; co: critical: ")
    assert not set(text) & set("<>\n")


def test_a_receiver_that_hangs_holds_up_nobody(late: RunView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LAST_S", 0.2)
    held = threading.Event()

    class Hanging:
        name = "hanging"

        def deliver(self, _: Notice) -> str:
            held.wait()
            return ""

        def hurry(self) -> None:
            pass

        def stop(self) -> None:
            pass

    worker = Delivery([Hanging()])
    for _ in range(delivery.MAX_WAITING + 50):
        worker.add(news(late))  # returns at once, or this test would not end
    (line,) = worker.close()
    held.set()
    assert "notices were not delivered when the session ended" in line
    assert int(line.split()[1]) >= delivery.MAX_WAITING


def test_a_command_that_hangs_is_said_ends_with_the_session_and_holds_up_no_webhook(
    tmp_path: Path, hook: str, late: RunView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does what it has started go on."""
    script, pids = tmp_path / "hang.py", tmp_path / "pids"
    script.write_text(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r} + '.new', 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename({str(pids)!r} + '.new', {str(pids)!r})\n"
        "time.sleep(600)\n"
    )
    worker = Delivery([CommandReceiver(f"{sys.executable} {script}"), WebhookReceiver(hook, "json")])
    worker.add(news(late))
    wait_until(lambda: pids.exists() and Hook.bodies and not worker._lines[1].num_undelivered())
    monkeypatch.setattr(delivery, "LAST_S", 0.2)
    assert worker.close() == [
        f"--on-finding {sys.executable}: 1 notice was not delivered when the session ended"
    ]
    for pid in map(int, pids.read_text().split()):
        wait_until(lambda pid=pid: has_ended(pid))  # type: ignore[misc]


def test_what_was_told_is_not_lost_where_its_thread_has_not_ended(hook: str, late: RunView) -> None:
    """It waits for a core: what it has done is what counts, not whether it is there."""
    worker = Delivery([WebhookReceiver(hook, "json")])
    (line,) = worker._lines
    worker.add(news(late))
    assert line.num_undelivered() in (0, 1)
    wait_until(lambda: not line.num_undelivered(), "it is told")
    assert 1 == len(Hook.bodies)
    line.thread = cast("threading.Thread", SimpleNamespace(join=lambda _: None, is_alive=lambda: True))
    assert [] == worker.close()


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_webhooks_url_may_lie_in_a_file(tmp_path: Path, hook: str, late: RunView) -> None:
    """Arguments of a process are seen by everybody on its machine."""
    parser = argparse.ArgumentParser()
    add_outlets(parser)
    (tmp_path / "url").write_text(f"{hook}\n")
    with outlets_of(parser.parse_args([f"--webhook=@{tmp_path}/url"])) as outlets:
        outlets.follow(lambda: late)
        wait_until(lambda: Hook.bodies)
    assert json.loads(Hook.bodies[0][1])["event"] == "opened"
    with (
        pytest.raises(TuiadvisorError, match="No such file"),
        outlets_of(parser.parse_args(["--webhook=@/no/such"])),
    ):
        pass


@pytest.mark.parametrize("option", ["--webhook", "--on-finding", "--metrics-file", "--metrics-token"])
def test_an_option_of_a_variable_that_is_not_set_is_a_line(option: str) -> None:
    """`--webhook "$URL"` where URL is not set told nobody, and said nothing."""
    parser = argparse.ArgumentParser()
    add_outlets(parser)
    options = parser.parse_args(["--metrics", "127.0.0.1:0", option, ""])
    with pytest.raises(TuiadvisorError, match=f"{option}: nothing is named"), outlets_of(options):
        pytest.fail("a session begins")


def test_a_receiver_that_drips_does_not_hold_an_attempt_for_longer_than_its_limit(
    late: RunView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then is within each read's limit: one notice held up all later ones for hours."""
    monkeypatch.setattr(delivery, "PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(delivery, "WEBHOOK_S", 0.3)
    asked, told = [], []

    def drip(connection: socket.socket) -> None:
        with connection:
            asked.append(connection.recv(1 << 16))
            with contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nX-A: ")
                while not has_ended.wait(0.05):
                    connection.sendall(b"a")

    def serve(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=drip, args=(listening.accept()[0],), daemon=True).start()

    has_ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        receiver = WebhookReceiver(f"http://127.0.0.1:{listening.getsockname()[1]}/", "json")
        telling = threading.Thread(target=lambda: told.append(receiver.deliver(news(late))), daemon=True)
        telling.start()
        telling.join(PATIENCE_S)
        assert told == ["no answer within 0.3 s"]
        wait_until(lambda: len(asked) == 3, "each attempt was taken")  # by threads that may come to it later
        has_ended.set()
