"""The recorded corpora as calls: ``REPLAYPACK_CORPORA`` or ``../shared/data``; parsed once, kept in a cache."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from replaypack import values

from .common import cache_path
from .workloads import Call

__all__ = ["CORPORA", "corpus", "corpora_directory"]

CORPORA = ("crewai", "swe-agent", "tau-bench", "openllmetry", "pydantic-ai")
_PARSER = 3  # counts changes of what the functions below make of a file


def corpora_directory() -> Path | None:
    """Where the corpora lie, or None."""
    named = os.environ.get("REPLAYPACK_CORPORA")
    for candidate in [Path(named)] if named else [Path("../shared/data"), Path("shared/data")]:
        if candidate.is_dir():
            return candidate
    return None


def corpus(name: str) -> list[Call] | None:
    """The calls of one corpus, or None where it is absent."""
    directory = corpora_directory()
    path = directory / f"{name}.tar.zst" if directory is not None else None
    if path is None or not path.is_file():
        return None
    cached = cache_path(f"corpus-{name}-{path.stat().st_size}-{_PARSER}.msgpack")
    if not cached.exists():
        calls = [values.encode(list(call)) for call in _calls(name, path)]
        partial = cached.with_suffix(".part")
        partial.write_bytes(msgspec.msgpack.encode(calls))
        partial.rename(cached)
    return [Call(*values.decode(call)) for call in msgspec.msgpack.decode(cached.read_bytes(), type=list[bytes])]


def _calls(name: str, path: Path) -> Iterator[Call]:
    with (
        path.open("rb") as file,
        zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(file) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is None:
                continue
            data = content.read()
            if name == "tau-bench":
                yield from _tau_bench(member.name, data)
            elif name == "swe-agent":
                yield from _swe_agent(member.name, data)
            elif member.name.endswith((".yaml", ".yml")):
                yield from _cassette(data)


def _turns(messages: list[Any], model: str) -> Iterator[Call]:
    """One call an assistant turn: its request is the history so far."""
    for number, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") == "assistant":
            yield Call("model", model, {"model": model, "messages": messages[:number]}, message)


def _tau_bench(name: str, data: bytes) -> Iterator[Call]:
    if name.endswith(".json"):
        for run in json.loads(data):
            yield from _turns(run["traj"], "gpt-4o")


def _swe_agent(name: str, data: bytes) -> Iterator[Call]:
    if name.endswith(".traj"):
        yield from _turns(json.loads(data)["history"], "gpt4")


def _cassette(data: bytes) -> Iterator[Call]:
    """vcrpy's interactions, one call each: HTTP, and what pydantic-ai records of WebSocket and gRPC."""
    document = _load_yaml(data)
    for item in document.get("interactions") or () if isinstance(document, dict) else ():
        if "request" in item:
            yield Call("http", item["request"].get("method"), item["request"], item["response"])
        elif "direction" in item:
            sent = item["direction"] == "sent"
            head = {"kind": item["kind"], "direction": item["direction"]}
            yield Call(
                "websocket", None, {**head, "data": item["data"]} if sent else head, None if sent else item["data"]
            )
        elif "request_sample" in item:
            yield Call("grpc", "sample", item["request_sample"], item["response_sample"])
        elif "request_stream" in item:
            yield Call("grpc", "stream", item["request_stream"], item["response_stream"])
        elif "collections_method" in item:
            yield Call(
                "grpc", "collections", {"method": item["collections_method"]["method"]}, item["collections_method"]
            )
        else:
            yield Call("websocket", None, {"kind": item.get("kind")}, item)


def _load_yaml(data: bytes) -> Any:
    import yaml

    class Loader(yaml.CSafeLoader):
        """Text that looks like a time stays text."""

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }
    return yaml.load(data, Loader=Loader)
