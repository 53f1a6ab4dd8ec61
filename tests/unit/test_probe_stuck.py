"""Where a rank says that it is: the call of torch.distributed, its group, and how far each group got.

Of torch there are the names and the places of files by which frames are told; the frames are real.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tuiadvisor_probes import stuck

C10D_NAME = "torch.distributed.distributed_c10d"
C10D = "/site/torch/distributed/distributed_c10d.py"
LOGGER = "/site/torch/distributed/c10d_logger.py"
GRAPH = "/site/torch/autograd/graph.py"
FUNCTIONAL = "/site/torch/distributed/_functional_collectives.py"
SCRIPT = "/home/user/train.py"
WORLD = object()


def function(path: str, source: str, **names: Any) -> Callable[..., Any]:
    """The function that the source defines last, as if it stood in that file."""
    namespace: dict[str, Any] = dict(names)
    exec(compile(source, path, "exec"), namespace)  # noqa: S102  # for the file's name in its frames
    return namespace[list(namespace)[-1]]  # type: ignore[no-any-return]


class Look:
    """Called at the innermost place: what is said of the frames around it."""

    def __init__(self, of: Callable[[Any], Any]) -> None:
        self.of = of
        self.found: Any = None

    def __call__(self) -> None:
        self.found = self.of(sys._getframe(1))


def said_of(
    call: Callable[[Look], Any], of: Callable[[Any], Any] = lambda frame: stuck.call_of(frame)[0]
) -> Any:
    look = Look(of)
    call(look)
    return look.found


def in_script(source: str, **names: Any) -> Any:
    function(SCRIPT, f"def step():\n    {source}\n", **names)()


@pytest.fixture(name="c10d")
def _c10d(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch.distributed's state: the world of four and a group of two."""

    class Group(SimpleNamespace):
        __hash__ = object.__hash__

        def _get_sequence_number_for_group(self) -> int:
            seq: int = self.seq
            return seq

    world, pair = Group(seq=12, group_desc="undefined"), Group(seq=7, group_desc="tensor parallel")
    module: Any = ModuleType(C10D_NAME)
    module.world, module.pair = world, pair
    module.GroupMember = SimpleNamespace(WORLD=WORLD)
    module._get_default_group = lambda: world
    module.is_initialized = lambda: True
    module.get_rank = lambda: 3
    module._world = SimpleNamespace(
        pg_map={world: ("gloo", None), pair: ("nccl", None)},
        pg_names={world: "0", pair: "tp"},
        pg_group_ranks={world: {2: 2, 0: 0, 3: 3, 1: 1}, pair: {3: 1, 2: 0}},
    )
    monkeypatch.setitem(sys.modules, C10D_NAME, module)
    return module


@pytest.mark.parametrize("of", [stuck.places_of, stuck.stack_of])
def test_the_probes_own_frames_are_no_part_of_a_stack(of: Callable[[Any], Any]) -> None:
    """Whatever a hook calls: its clock's and patch's lines stood among the program's."""

    def call(look: Look) -> None:
        spend = function(
            "/opt/share/tuiadvisor_probes/step_clock.py", "def spend():\n    look()\n", look=look
        )
        in_script("spend()", spend=spend)

    shown = repr(said_of(call, of))
    assert "train.py" in shown
    assert "step_clock" not in shown


def test_a_collective_is_named_as_the_script_called_it() -> None:
    """Through the decorator around every call, and whatever it calls itself of the same file."""

    def call(look: Look) -> None:
        inner = function(C10D, "def all_reduce(group=None):\n    look()\n", look=look)
        outer = function(C10D, "def barrier(group=None):\n    inner()\n", inner=inner)
        wrapped = function(LOGGER, "def wrapper():\n    outer()\n", outer=outer)
        in_script("wrapped()", wrapped=wrapped)

    assert "barrier" == said_of(call)


def test_a_private_function_names_a_call_only_where_nothing_else_does() -> None:
    """Of torch's functional collectives, too."""

    def alone(look: Look) -> None:
        in_script("it()", it=function(FUNCTIONAL, "def _wait_all():\n    look()\n", look=look))

    def below(look: Look) -> None:
        inner = function(FUNCTIONAL, "def _expand():\n    look()\n", look=look)
        in_script("it()", it=function(FUNCTIONAL, "def all_gather_tensor():\n    inner()\n", inner=inner))

    assert "_wait_all" == said_of(alone)
    assert "all_gather_tensor" == said_of(below)


def test_autograds_engine_is_called_backward() -> None:
    def call(look: Look) -> None:
        in_script("it()", it=function(GRAPH, "def _engine_run_backward():\n    look()\n", look=look))

    assert "backward" == said_of(call)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("handle.wait()", "wait"),
        ("handle._broadcast_coalesced()", "broadcast"),
        ("handle.item()", None),  # waits for a device, for no rank
        ("handle.wait.hidden()", None),
        ("store.get()", "store.get"),  # until some rank sets the key
        ("handle.get()", None),  # a dictionary's
    ],
)
def test_a_wait_in_c_is_told_by_the_line_that_calls_it(line: str, name: str | None) -> None:
    """No frame of Python shows it: the script's own frame is the innermost."""

    def of_caller(_frame: Any) -> Any:
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != SCRIPT:
            frame = frame.f_back
        return stuck.call_of(frame)[0]

    def call(look: Look) -> None:
        wait = SimpleNamespace(hidden=look)
        handle = SimpleNamespace(wait=look, _broadcast_coalesced=look, item=look, get=look)
        if "hidden" in line:
            handle = SimpleNamespace(wait=wait)
        in_script(line, handle=handle, store=handle)

    assert name == said_of(call, of_caller)


def test_a_wait_that_our_own_hook_makes_is_the_scripts() -> None:
    def call(look: Look) -> None:
        hook = "def tuiadvisor_hook(original):\n    look()\n"
        wait = function("/any.py", "def wait():\n    pass\n")
        in_script("hook(wait)", hook=function("/any.py", hook, look=look), wait=wait)

    assert "wait" == said_of(call)


def test_code_that_only_computes_is_in_no_call() -> None:
    assert said_of(lambda look: in_script("look()", look=look)) is None


@pytest.mark.parametrize(
    ("given", "group", "peer"),
    [("group=None", "0", None), ("group=world", "0", None), ("group=pair, dst=2", "tp", 2)],
)
def test_a_call_tells_its_group_and_its_other_side(
    c10d: Any, given: str, group: str, peer: int | None
) -> None:
    """Nothing named is the world."""

    def call(look: Look) -> None:
        it = function(C10D, "def send(group=None, dst=None):\n    look()\n", look=look)
        in_script(f"it({given})", it=it, world=WORLD, pair=c10d.pair)

    found = said_of(call, lambda frame: stuck.whom(stuck.call_of(frame)[1]))
    assert {"call_group": group, "call_peer": peer} == found


def test_what_is_no_call_of_c10d_tells_no_group() -> None:
    """A functional collective's arguments are others."""

    def call(look: Look) -> None:
        in_script("it(1)", it=function(FUNCTIONAL, "def all_reduce(group):\n    look()\n", look=look))

    assert {} == said_of(call, lambda frame: stuck.whom(stuck.call_of(frame)[1]))
    assert {} == stuck.whom(None)


def test_each_group_is_told_with_its_members_and_its_last_number(c10d: Any) -> None:
    """Read only; a purpose that torch calls undefined is none."""
    assert [
        {"name": "0", "purpose": "", "backend": "gloo", "members": [0, 1, 2, 3], "seq": 12},
        {"name": "tp", "purpose": "tensor parallel", "backend": "nccl", "members": [2, 3], "seq": 7},
    ] == stuck.groups()
    assert 3 == stuck.own_rank()

    c10d.is_initialized = lambda: False
    assert ([], None) == (stuck.groups(), stuck.own_rank())


def told(folder: Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((folder / "state.json").read_text())
    return said


def report_from_a_thread(folder: Path) -> dict[str, Any]:
    """As an injected thread does, of the main thread, which waits for it here."""
    thread = threading.Thread(target=stuck.report, args=(str(folder),))
    thread.start()
    thread.join(60)
    return told(folder)


def test_a_process_tells_its_stack_its_groups_and_its_rank(c10d: Any, tmp_path: Path) -> None:
    """Ours and the importer's frames are none of its own."""
    said = report_from_a_thread(tmp_path)
    assert (3, 2, None) == (said["rank"], len(said["groups"]), said["call"])
    assert any(line.startswith("report_from_a_thread (unit/test_probe_stuck.py:") for line in said["stack"])
    assert "why" not in said


def test_a_torch_we_were_not_written_for_still_leaves_the_stack(c10d: Any, tmp_path: Path) -> None:
    del c10d._world
    said = report_from_a_thread(tmp_path)
    assert said["why"].startswith("AttributeError")
    assert [] == said["groups"]
    assert any("report_from_a_thread" in line for line in said["stack"])


def sampled(folder: Path, budget_ppm: int = 500_000, window_ns: int = 60_000_000) -> None:
    thread = threading.Thread(
        target=stuck.sample_quietly, args=(str(folder), window_ns, 1_000_000, budget_ppm)
    )
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_samples_name_the_line_where_the_thread_was(tmp_path: Path) -> None:
    """Each is one of the stacks, each stack is made of the frames told; the window is not much longer than asked."""
    sampled(tmp_path)
    said = told(tmp_path)
    assert 0 < len(said["samples"]) <= stuck.MAX_SAMPLES
    assert set(said["samples"]) == set(range(len(said["stacks"])))
    functions = [{said["frames"][place][0] for place in stack} for stack in said["stacks"]]
    assert all("sampled" in names for names in functions)
    assert said["window_ns"] >= 60_000_000


def test_a_budget_makes_looks_rarer(tmp_path: Path) -> None:
    """One look costs tens of microseconds: of a hundred thousandth of the time that is one in seconds."""
    sampled(tmp_path, budget_ppm=10)
    assert len(told(tmp_path)["samples"]) <= 4


def test_a_folder_that_is_gone_takes_the_request_back(tmp_path: Path) -> None:
    """Whoever asked has left: nothing is written and nobody hears of it."""
    sampled(tmp_path / "gone", window_ns=3600 * 10**9)
    assert [] == list(tmp_path.iterdir())


def test_beside_its_flight_recorder_a_rank_tells_its_call_and_the_backend_that_torch_took(
    c10d: Any, tmp_path: Path
) -> None:
    """The training thread receives a message, which is in no recorder; nobody chose the world's backend."""
    world, pair = c10d._world.pg_map
    c10d._world.pg_map[world] = ("undefined", None)
    c10d._world.pg_backend_config = {world: "cpu:gloo", pair: "cuda:nccl"}
    receive = function(C10D, "def recv():\n    ask()\n", ask=lambda: stuck.recorded(str(tmp_path)))
    in_script("receive()", receive=receive)
    said = json.loads((tmp_path / "state.json").read_text())
    assert ("recv", 3) == (said["call"], said["rank"])
    assert ["cpu:gloo", "nccl"] == [group["backend"] for group in said["groups"]]
    assert ["fr", "nccl"] == list(said["recorders"])


class Model:
    """As much of a module as is asked."""

    def __init__(self, *, training: bool, has_parameters: bool = True) -> None:
        self.training = training
        self._modules: dict[str, Any] = {"itself": self, "nothing": None}
        self._parameters = {"bias": None, "weight": object() if has_parameters else None}

    def parameters(self) -> Any:
        raise AssertionError("of the training's own")


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ([Model(training=False)], True),
        ([Model(training=False), Model(training=True, has_parameters=False)], True),  # a loss function
        ([Model(training=True)], False),
        ([Model(training=False), Model(training=True)], False),  # a teacher beside its student
        ([], False),
    ],
)
def test_a_thread_evaluates_where_no_model_at_hand_is_in_training(
    models: list[Model], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all frames together; what has no parameters has no mode that means anything."""
    monkeypatch.setitem(sys.modules, "torch.nn", SimpleNamespace(Module=Model))
    work = function(SCRIPT, "def work(look, one=None, other=None):\n    look()")
    assert expected is said_of(lambda look: work(look, *models), stuck.looks_like_evaluation)


@pytest.mark.parametrize(
    ("maker", "expected"), [("no_grad", True), ("inference_mode", True), ("enable_grad", False)]
)
def test_a_function_without_gradients_evaluates_whatever_its_models_mode(
    maker: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.nn", SimpleNamespace(Module=Model))
    factory = type(maker, (), {"clone": lambda self: self})().clone
    place = "/env/lib/torch/utils/_contextlib.py"
    decorated = function(place, "def decorate_context(look, ctx_factory, model):\n    look()")
    model = Model(training=True)
    assert expected is said_of(lambda look: decorated(look, factory, model), stuck.looks_like_evaluation)


@pytest.mark.parametrize(("owner", "expected"), [("Optimizer", False), ("Sampler", True)])
def test_a_closure_within_an_optimizers_step_is_training(
    owner: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LBFGS's step is decorated and asks for gradients in its closures alone; Lightning trains in one."""
    classes = {name: type(name, (), {}) for name in ("Optimizer", "Sampler")}
    monkeypatch.setitem(sys.modules, "torch.nn", SimpleNamespace(Module=Model))
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", SimpleNamespace(Optimizer=classes["Optimizer"]))
    factory = type("no_grad", (), {"clone": lambda self: self})().clone
    place = "/env/lib/torch/utils/_contextlib.py"
    decorated = function(place, "def decorate_context(look, ctx_factory, func, model, *args):\n    look()")
    step = function(SCRIPT, "def step(self, closure=None):\n    pass")
    own = type("Own", (classes[owner],), {})()
    model = Model(training=True)
    assert expected is said_of(
        lambda look: decorated(look, factory, step, model, own), stuck.looks_like_evaluation
    )


@pytest.mark.skipif(not stuck.LEAVES_A_DICT, reason="a look leaves nothing from Python 3.13 on")
def test_variables_are_looked_at_once_until_the_thread_has_forgotten_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second look may destroy what the first one left; without a probe nobody would have the frames forget it."""
    monkeypatch.setitem(sys.modules, "torch.nn", SimpleNamespace(Module=Model))
    work = function(SCRIPT, "def work(look, model):\n    look()\n    model.training = True\n    look()")
    probe = SimpleNamespace(clock=SimpleNamespace(thread_ident=7), looked_at=0, evaluated=False)
    answers: list[bool] = []

    def ask(frame: Any) -> None:
        answers.append(stuck.evaluates(frame))

    said_of(lambda look: work(look, Model(training=False)), ask)
    monkeypatch.setitem(sys.modules, stuck.PROBE, SimpleNamespace(_probe=probe))  # type: ignore[arg-type]
    said_of(lambda look: work(look, Model(training=False)), ask)
    assert [False, False, True, True] == answers
    assert 7 == probe.looked_at
    probe.looked_at = 0
    said_of(lambda look: work(look, Model(training=True)), ask)
    assert not answers[-1]


def handled(*raised: type[BaseException]) -> bool:
    """What a thread says of itself that handles these, the last of them innermost."""
    if not raised:
        return stuck.is_ending(threading.get_ident())
    try:
        raise raised[0]  # noqa: TRY301 - it is what is handled
    except BaseException:  # noqa: BLE001 - whatever it is
        return handled(*raised[1:])


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        ((), False),
        ((KeyboardInterrupt,), True),
        ((SystemExit,), True),
        ((KeyboardInterrupt, TimeoutError), True),  # while it cleans up
        ((RuntimeError,), False),  # which the training may get over
    ],
)
def test_a_thread_beneath_an_interruption_is_on_its_way_out(
    raised: tuple[type[BaseException], ...], expected: bool
) -> None:
    """One that waits in its `finally` after Ctrl-C looks like one that hangs."""
    assert expected is handled(*raised)


def test_one_that_got_over_an_interruption_is_not_ending() -> None:
    """Nor is a thread that is not there."""
    with contextlib.suppress(KeyboardInterrupt):
        raise KeyboardInterrupt
    assert not stuck.is_ending(threading.get_ident())
    assert not stuck.is_ending(0)
