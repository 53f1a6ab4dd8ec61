"""What `tuiadvisor import serving` is told: pages, how far apart they are, objectives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.cli.options.duration import seconds
from tuiadvisor.cli.options.latency import latency
from tuiadvisor.views.serving import OBJECTIVES

if TYPE_CHECKING:
    import argparse

ABOUT: Final = (
    "The metrics page of vLLM, SGLang, TGI, TensorRT-LLM, Triton or Dynamo: latencies against objectives, goodput, "
    "queue, KV cache, what to change. One page counts since the server started, two what came between them."
)


def add_serving(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The parser of this kind of import."""
    text = "the metrics page of a serving process (vLLM, SGLang, TGI, Triton, ...), or two of them"
    parser = subparsers.add_parser("serving", help=text, description=ABOUT)
    parser.add_argument(
        "pages", nargs="+", metavar="URL|FILE", help="an address, a saved page, or two of these"
    )
    parser.add_argument(
        "--every",
        type=seconds,
        metavar="SECONDS",
        help="for an address: read it twice, this far apart; for two files: how far apart they are",
    )
    for signal, what in zip(
        OBJECTIVES, ("time to the first token", "time per output token", "whole request"), strict=True
    ):
        parser.add_argument(
            f"--{signal}-slo", type=latency, metavar="TIME", help=f"objective for the {what}: 500ms, 2s"
        )
    parser.add_argument("--model", metavar="NAME", help="of several models on the page this one alone")
    parser.add_argument("--json", action="store_true", help="one JSON document, schema 1")
    parser.add_argument("-o", "--output", metavar="FILE", help="write it: .json, .md or .html")
