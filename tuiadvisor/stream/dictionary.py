"""What every payload looks like before its numbers: the compressor starts from here, so small frames stay small.

Part of the frame format: never change a byte of DICTIONARY_1, old recordings could not be read any more. New words
go into a second dictionary under a flag of its own. The most frequent frames stand last, where zstd finds them best.
"""

from __future__ import annotations

from typing import Final

import zstandard

_HOOKS = (
    '"hooks":{"install":"ok","install_data_hook":"ok","data_wait":"ok","install_model_hooks":"ok","forward_ddp":"ok",'
    '"ddp_buffers":"ok","backward":"ok","install_collective_hooks":"ok","collectives":"ok","work_wait":"ok",'
    '"install_mark_hooks":"ok","checkpoint":"ok","gc":"ok","install_optimizer_hook":"ok","optimizer":"ok"},"absent"'
)
_HELLO = (
    '{"host":"node1","agent_pid":12345,"boot_id":"00000000-0000-0000-0000-000000000000","wall_ns":1700000000000000000,'
    '"mono_ns":1000000000000,"python":"3.11.9","platform":"Linux-6.1.0-x86_64-with-glibc2.36","num_cpus":64,'
    '"memory_bytes":549755813888,"gpus":["NVIDIA H100 80GB HBM3"],"ranks":[{"rank":0,"local_rank":0,"world_size":8,'
    '"pid":12345,"state":"waiting_to_attach","detail":"waiting for the interpreter","state":"detached","detail":'
    '"the probe was taken out","state":"found","detail":"attaching","python":"3.11","torch":null,"backend":null,'
    '"device":null,"torch":"2.6.0+cu124","backend":"nccl","device":"cuda","torch":"2.6.0+cpu","backend":"gloo",'
    '"device":"cpu","command":"/usr/bin/python -u train.py","label":"train.py","parallel":{"dp":8,"tp":1,"pp":1},'
    '"start_wall_ns":1700000000000000000,' + _HOOKS + ',"hooks":{},"cuda":null,"nccl":null,"git_commit":null,'
    '"attach_way":"thread","attach_stopped_ns":500000,"attach_total_ns":150000000}'
)
_HOST = (
    '{"host":"node1","mono_ns":1000000000000,"wall_ns":1700000000000000000,"cpu":0.5,"cpu_per_core":[0.5,0.25],'
    '"iowait":0.0,"disk_read_bytes_s":0.0,"disk_write_bytes_s":0.0,"net_bytes_s":0.0,"memory":0.25,"load_1m":1.0,'
    '"num_cpus":64,"gpus":[],"ranks":[{"rank":0,"cpu_s":2.5,"run_delay_s":0.01,"rss_bytes":363577344,"num_threads":4,'
    '"voluntary_switches":334,"involuntary_switches":832},{"rank":1,"cpu_s":'
)
_STATUS = (
    '{"host":"node1","mono_ns":1000000000000,"wall_ns":1700000000000000000,"ranks":[{"rank":0,"state":"live",'
    '"detail":"","phase":"data_wait","phase":"comm_exposed","phase":"optimizer","phase":null,"phase":"forward",'
    '"phase":"backward","phase_since_ns":1000000000000,"step":100,"lost_steps":0,"lost_events":0,"hooks_disabled":0,'
    '"errors":0},{"rank":1,"state":"live","detail":"","phase":'
)
_EVENTS = (
    '{"rows":100,"columns":{"rank":{"w":1,"lo":0,"p":"","d":0},"kind":{"w":1,"lo":1,"p":""},"step":{"w":1,"lo":0,'
    '"p":"AAAAAAAAAAAAAAAA","d":100},"begin_ns":{"w":3,"lo":100,"p":"","d":1000000000000,"after":"end_ns"},'
    '"end_ns":{"w":3,"lo":100000,"p":"","at":[["begin_ns"],[]]},"group":0,"seq":{"w":1,"lo":0,"p":"","d":100},'
    '"num_bytes":-1,"detail":0}}'
)
_STEPS = (
    '{"rows":100,"columns":{"rank":{"w":1,"lo":-3,"p":"AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMD","d":0},'
    '"step":{"w":1,"lo":-3,"p":"BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE","d":100},"begin_ns":{"w":4,"lo":-100000000,"p":"",'
    '"d":1000000000000,"after":"end_ns"},"end_ns":{"w":3,"lo":20000000,"p":"","at":[["begin_ns"],[]]},'
    '"data_wait_ns":{"w":3,"lo":1000000,"p":""},"h2d_ns":0,"h2d_ns":-1,"forward_ns":{"w":3,"lo":6000000,"p":""},'
    '"backward_ns":{"w":3,"lo":9000000,"p":""},"comm_exposed_ns":{"w":3,"lo":3000000,"p":""},"optimizer_ns":{"w":3,'
    '"lo":1000000,"p":""},"checkpoint_ns":0,"eval_ns":0,"pipeline_idle_ns":0,"pipeline_idle_ns":-1,'
    '"other_ns":{"w":1,"lo":0,"p":"AAAAAAAAAAAAAAAAAAAAAAAA","at":[["end_ns"],["begin_ns","data_wait_ns","h2d_ns",'
    '"forward_ns","backward_ns","comm_exposed_ns","optimizer_ns","checkpoint_ns","eval_ns","pipeline_idle_ns"]]},'
    '"arrive_ns":{"w":3,"lo":100000,"p":"","at":[["begin_ns","data_wait_ns","h2d_ns","forward_ns","backward_ns"],[]]},'
    '"release_ns":{"w":1,"lo":0,"p":"AAAAAAAAAAAAAAAAAAAAAAAA","at":[["arrive_ns","comm_exposed_ns"],[]]},'
    '"comm_total_ns":{"w":3,"lo":-1,"p":""},"comm_total_ns":-1,"group_seq":{"w":1,"lo":-3,"p":"BAQEBAQEBAQEBAQE",'
    '"d":100},"num_collectives":1,"comm_bytes":268840,"micro_steps":1,"samples":32,"tokens":-1,"flags":{"w":1,"lo":0,'
    '"p":"AAAAAAAAAAAAAAAA"},"flags":0,"observed":637,"probe_cost_ns":{"w":2,"lo":30000,"p":""},"probe_cost_ns":-1,'
    '"gc_ns":0,"peak_memory_bytes":-1,"cpu_ns":{"w":3,"lo":-1,"p":""}}}'
)

DICTIONARY_1: Final = zstandard.ZstdCompressionDict(
    (_HELLO + _HOST + _EVENTS + _STATUS + _STEPS).encode(), dict_type=zstandard.DICT_TYPE_RAWCONTENT
)
