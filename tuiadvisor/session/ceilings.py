"""A run held against its machine's ceilings: is the link slow or the message small; is the storage at its limit?

In: Facts and Machine.  Out: Why. Where only the exposed part of the exchange was seen, it is a lower bound and said so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.session.answer import Why
from tuiadvisor.session.evidence import share_of_step
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from tuiadvisor.session.evidence import Facts
    from tuiadvisor.session.machine import Machine, Network

SLOW: Final = (
    1.5  # times the benchmark's time: beyond what placement and other traffic explain from run to run
)
SMALL: Final = 0.5  # of the best rate: nccl-tests' own half-way point
GOOD: Final = 0.8  # of the best rate: a message that wastes little
FULL: Final = 0.8  # of the storage's rate
WORTH: Final = 0.05  # of the step: below it neither is worth the question
MEASURE_LINK: Final = (
    "On the job's nodes, with as many ranks: all_reduce_perf -b 8 -e 1G -f 2 -g 1, its output kept in nccl.txt, then: "
    "tuiadvisor import nccl-tests nccl.txt --save"
)
MEASURE_STORAGE: Final = (
    "On a node of the job: fio --name=read --rw=randread --bs=256k --size=1G --directory=DATA_DIR --direct=1 "
    "--runtime=30 --time_based --output-format=json --output=fio.json, then: tuiadvisor import fio fio.json --save"
)
SLOW_LINK: Final = (
    "The link is slow: look at which interface and path the ranks use (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET, "
    "nvidia-smi topo -m) and for other traffic"
)


def link(run: Facts, machine: Machine) -> Why:
    """Is the link slow or the message small?"""
    question = "Is the link slow or the message small?"
    if run.num_ranks == 1:
        return Why("link", question, "Neither: the job has one rank.", "")
    if run.backend not in {None, "nccl"}:
        said = f"Unknown: the training communicates by {run.backend}, the ceiling is NCCL's."
        return Why(
            "link", question, said, "Run the training with the nccl backend, or judge it by its own times."
        )
    if run.gradient_bytes is None or run.transfer_s is None:
        missing = (
            "how many bytes a step sends" if run.gradient_bytes is None else "when the last rank arrived"
        )
        return Why("link", question, f"Unknown: {missing} was not observed.", MEASURE_LINK)
    network = machine.network_for(run.num_ranks, run.num_hosts)
    if network is None:
        where = "between hosts" if (run.num_hosts or 1) > 1 else "within one host"
        return Why("link", question, f"Unknown: what the link {where} can do was not measured.", MEASURE_LINK)
    return Why("link", question, *_link(run, network))


def _link(run: Facts, network: Network) -> tuple[str, str]:
    size, messages = float(run.gradient_bytes or 0), max(run.num_collectives or 1, 1)
    each = size / messages
    ring = _ring(run.num_ranks or 2) / _ring(network.num_ranks or run.num_ranks or 2)
    ideal = messages * network.time(each) * ring
    share = each / network.time(each) / network.best_rate()
    # Both of the steps seen in detail: waiting of all steps against communication of some could be more than it.
    total_s, skew_s = run.comm_total_s, run.skew_sampled_s
    is_total = total_s is not None and skew_s is not None
    spent = max((total_s or 0.0) - (skew_s or 0.0), 0.0) if is_total else run.transfer_s or 0.0
    answer = (
        f"A step all-reduces {_mb(size)} in {messages} message{'s' * (messages > 1)} of {_mb(each)}"
        f"{' on average' * (messages > 1)}. nccl-tests needed {seconds(ideal)} for that on a link without other "
        f"work; the training takes {seconds(spent)}{'' if is_total else ' that nothing hides'}, without waiting for "
        "late ranks."
    )
    said, unknown = [], []
    if spent > SLOW * ideal:
        said.append(f"{SLOW_LINK}: it takes {spent / ideal:.1f}x what it could.")
    if share < SMALL:
        said.append(
            f"The messages are small: such a message gets {100 * share:.0f} % of the link's best rate, one of "
            f"{_mb(_good_size(network))} gets {100 * GOOD:.0f} %: DDP(bucket_cap_mb={_good_size(network) / 2**20:.0f})."
        )
    if not said:
        said.append(
            "Neither: the messages are large enough and the link gives what it can; what is left is to send less, or "
            "to hide more of it."
        )
    if run.num_collectives is None:
        unknown.append(
            "How many messages a step sends was not observed; one was taken, the best case for the link."
        )
    if network.num_ranks != run.num_ranks:
        had = "an unknown number of" if network.num_ranks is None else str(network.num_ranks)
        unknown.append(f"The ceiling is of {had} ranks, carried over by the ring's bandwidth term.")
    if not is_total:
        unknown.append(
            "Communication that compute hides was not observed: the link may be slower than this shows."
        )
    return f"{answer} {' '.join(said)}", " ".join(unknown)


def _ring(num_ranks: int) -> float:
    return (num_ranks - 1) / num_ranks


def _good_size(network: Network) -> float:
    """The smallest measured message that gets GOOD of the best rate."""
    best = network.best_rate()
    return next(size for size, time in network.rows if size / time >= GOOD * best)


def _mb(size: float) -> str:
    return f"{size / 1e6:.3g} MB" if size >= 1e5 else f"{size / 1e3:.3g} kB"


def storage(run: Facts, machine: Machine) -> Why:
    """Is the storage at its limit?"""
    question = "Is the storage at its limit?"
    share = share_of_step(run, run.seconds.get("data_wait"))
    if share is not None and share < WORTH:
        return Why(
            "storage",
            question,
            f"It does not matter: {100 * share:.1f} % of the step is waiting for data.",
            "",
        )
    found = machine.storage
    if found is None or found.read_bytes_s is None:
        return Why("storage", question, "Unknown: what the storage can do was not measured.", MEASURE_STORAGE)
    if run.disk_read_bytes_s is None:
        return Why(
            "storage", question, "Unknown: what the hosts read from their disks was not observed.",
            "iostat -x 1 10 on a node of the job; a network file system does not show there: nfsiostat 1 10.",
        )  # fmt: skip
    ratio = run.disk_read_bytes_s / found.read_bytes_s
    answer = (
        f"The busiest host reads {_mb(run.disk_read_bytes_s)}/s from its disks, fio got {_mb(found.read_bytes_s)}/s: "
        f"{100 * ratio:.0f} %."
    )
    if ratio >= FULL:
        answer += " It is at its limit: fewer bytes a sample, a faster storage, or a copy on the node."
    else:
        answer += " It is not: more loader workers, or less work a sample, can use what is left."
    unknown = "A network file system and files in the page cache do not show in a host's disk reads."
    if not found.is_direct:
        unknown += " The ceiling is not known to be measured with --direct=1: it may be the memory's."
    return Why("storage", question, answer, unknown)
