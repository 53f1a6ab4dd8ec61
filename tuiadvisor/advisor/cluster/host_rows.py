"""The hosts as the view shows them: what each said last, and its means.

In: payloads of HELLO and HOST frames.  Out: a HostRow a host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from tuiadvisor.advisor.cluster.device_clocks import device_line
from tuiadvisor.advisor.cluster.payload_fields import integer, number, objects, text
from tuiadvisor.views.devices import why_no_device
from tuiadvisor.views.run_view import HostRow

if TYPE_CHECKING:
    from tuiadvisor.advisor.cluster.host_use import HostUse
    from tuiadvisor.advisor.cluster.payload_fields import Payload

Number = TypeVar("Number", int, float)
UNHEARD: Final = HostRow("", None, None, None, None, None, None)


def host_row(host: str, payload: Payload, former: HostRow | None, use: HostUse) -> HostRow:
    """The host's row after this payload: what it does not say stays as it was. use: what its means are taken from."""
    former = former or UNHEARD
    cpu_mean, iowait_mean, busy_mean, memory_most = use.means(host)
    disk_busy, reads_s, writes_s = use.disks(host)
    return HostRow(
        host=host,
        cpu=_latest(number(payload, "cpu"), former.cpu),
        memory=_latest(number(payload, "memory"), former.memory),
        load_1m=_latest(number(payload, "load_1m"), former.load_1m),
        num_cpus=_latest(integer(payload, "num_cpus"), former.num_cpus),
        cpu_model=text(payload, "cpu_model") or former.cpu_model,
        disk_read_bytes_s=_latest(number(payload, "disk_read_bytes_s"), former.disk_read_bytes_s),
        net_bytes_s=_latest(number(payload, "net_bytes_s"), former.net_bytes_s),
        gpus=tuple(device_line(entry) for entry in objects(payload, "gpus")) or former.gpus,
        no_gpus=why_no_device(text(payload, "why_no_gpus") or "") or former.no_gpus,
        cpu_mean=cpu_mean,
        iowait_mean=iowait_mean,
        device_busy_mean=busy_mean,
        device_memory_most=memory_most,
        network_cards=_texts(payload, "network_cards") or former.network_cards,
        storage=_texts(payload, "storage") or former.storage,
        disk_busy_mean=disk_busy,
        disk_reads_s_mean=reads_s,
        disk_writes_s_mean=writes_s,
    )


def _latest(value: Number | None, former: Number | None) -> Number | None:
    return former if value is None else value


def _texts(payload: Payload, name: str) -> tuple[str, ...]:
    value = payload.get(name)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()
