"""The command line over a network: a web server without a listing, an S3 server, and what each command asks for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import replaypack
from replaypack.storage import MemoryStorage
from tests.support.names import no_invalid_hosts
from tests.support.proxy import Fault, Proxy
from tests.support.servers import Server

from .conftest import environment, run


class Watched(MemoryStorage):
    """Notes what is got, and how many at a time."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.keys: list[str] = []
        self._together = threading.Barrier(4)

    def get(self, key: str) -> bytes:
        self.keys.append(key)
        self._together.wait(20)  # returns only when four ask at once
        return super().get(key)


def test_ls_gets_one_small_object_a_recording_concurrently() -> None:
    from replaypack.cli.ls import _read

    archive = replaypack.Archive("memory://cli-ls")
    names = [f"run/{number}" for number in range(8)]
    for name in names:
        with archive.recorder(name) as recorder:
            recorder.append(kind="tool", identity=name, response=name)
    storage = Watched("memory://cli-ls")
    rows = _read(replaypack.Archive("memory://cli-ls", storage=storage), names)
    assert [row["name"] for row in rows] == names
    assert sorted(storage.keys) == [f"recordings/{name}/latest.json" for name in names]


def test_a_web_server_is_read_and_verified_without_a_listing(archive: str, static_server: Server) -> None:
    pytest.importorskip("aiohttp")
    assert static_server.root is not None
    root = static_server.root / "runs"
    shutil.copytree(archive, root)
    url = f"{static_server.url}/runs"
    assert run("show", f"{url}#team/mixed", "--json").json["records"] == 7
    sound = run("verify", f"{url}#team/mixed")
    assert (sound.code, sound.out) == (0, "sound: 1 recording (level full)\n")
    assert "cannot be listed: older revisions" in sound.err
    latest = root / "recordings/team/mixed/latest.json"
    data = latest.read_bytes()
    latest.write_bytes(data[:-1])
    damaged = run("verify", f"{url}#team/mixed", "--json")
    assert damaged.code == 1
    assert [fault["code"] for fault in damaged.json["faults"]] == ["latest.corrupted"]
    latest.write_bytes(data)
    for pack in Path(root).glob("packs/*/*.rpk"):
        pack.unlink()
    assert run("verify", f"{url}#team/mixed").code == 1
    listing = run("ls", url)
    assert listing.code == 2
    assert "no listing" in listing.err
    assert run("show", f"{url}#team/nothing").code == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://127.0.0.1:9/a", "Connection refused"),
        ("ftp://nohost.invalid/a", "its host is not found"),
        ("http://127.0.0.1:9/a", "Cannot connect to host"),
        ("sftp://nohost.invalid/a", "paramiko"),
        ("nosuch://x/a", "no filesystem is known for nosuch://"),
        ("ftp://[x", "it is no URL"),
        ("s3://", "names no host or bucket"),
    ],
)
@pytest.mark.parametrize("command", ["ls", "verify"])
def test_a_store_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, command: str, url: str, said: str) -> None:
    no_invalid_hosts(monkeypatch)
    monkeypatch.setitem(sys.modules, "paramiko", None)
    result = run(command, url, "--json", "-o", "replaypack.retry_seconds=0")
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert said in result.err
    error = result.json["error"]
    assert error["code"] in ("storage.unavailable", "storage.unsupported")
    assert error["url"].startswith(url.partition("[")[0].rstrip("/"))


@pytest.fixture
def s3(moto_server: Server) -> tuple[str, dict[str, str]]:
    fsspec = pytest.importorskip("s3fs")
    options = {"key": "x", "secret": "hunter2", "endpoint_url": moto_server.url}
    fsspec.S3FileSystem(**options, skip_instance_cache=True).makedirs("cli-bucket", exist_ok=True)
    return "s3://cli-bucket/runs", {"REPLAYPACK_STORAGE_OPTIONS": json.dumps(options)}


def test_an_s3_archive_from_end_to_end(s3: tuple[str, dict[str, str]]) -> None:
    url, env = s3
    options = json.loads(env["REPLAYPACK_STORAGE_OPTIONS"])
    archive = replaypack.Archive(url, options)
    with archive.recorder("a/b") as recorder:
        recorder.append(kind="tool", identity=1, response="x" * 10_000)
    assert run("ls", url, env=env).out.startswith("a/b\tsealed\t1\t")
    assert run("verify", url, env=env).code == 0
    assert run("cat", f"{url}#a/b", "0", "--response", env=env).out == "x" * 10_000 + "\n"
    assert "did you mean a/b?" in run("show", f"{url}#a/c", env=env).err
    assert run("rm", f"{url}#a/b", "--yes", env=env).code == 0
    assert run("ls", url, env=env).out == ""
    empty = run("ls", url + "-mistyped", env=env)
    assert empty.code == 1
    assert "no archive" in empty.err


def test_a_bucket_that_permits_no_listing_is_verified(
    archive: str, s3: tuple[str, dict[str, str]], moto_server: Server, tmp_path: Path
) -> None:
    url, env = s3
    assert run("copy", f"{archive}#team/mixed", f"{url}-unlisted", env=env).code == 0
    assert run("keygen", str(tmp_path / "key")).code == 0
    with Proxy(moto_server.url) as proxy:
        proxy.inject(Fault.s3(403, "AccessDenied"), times=None, when=lambda request: request.is_list)
        options = json.loads(env["REPLAYPACK_STORAGE_OPTIONS"]) | {"endpoint_url": proxy.url}
        readers = {"REPLAYPACK_STORAGE_OPTIONS": json.dumps(options)}
        found = run("verify", f"{url}-unlisted#team/mixed", env=readers)
        assert (found.code, found.out) == (0, "sound: 1 recording (level full)\n")
        assert "cannot be listed" in found.err
        found = run("verify", f"{url}-unlisted#team/mixed", "--key", str(tmp_path / "key.pub"), env=readers)
        assert found.code == 1
        assert "signature unsigned" in found.out


def test_a_store_that_cannot_be_reached_is_no_fault() -> None:
    pytest.importorskip("s3fs")
    options = ["-o", "key=AKIA", "-o", "secret=hunter2", "-o", "endpoint_url=http://127.0.0.1:9"]
    for command in (["ls", "s3://b/x"], ["verify", "s3://b/x"], ["verify", "s3://b/x#a"]):
        result = run(*command, *options, "-o", "replaypack.retry_seconds=0", "--json")
        assert result.code == 2
        assert result.json["error"]["code"] == "storage.unavailable"
        assert "hunter2" not in result.out + result.err


def test_a_journal_whose_store_cannot_be_reached_is_no_failure(s3: tuple[str, dict[str, str]]) -> None:
    url, env = s3
    script = (
        "import os, sys, json, replaypack\n"
        "options = json.loads(os.environ['REPLAYPACK_STORAGE_OPTIONS'])\n"
        "r = replaypack.Archive(sys.argv[1], options).recorder('dead', flush_interval=None)\n"
        "r.append(kind='tool', identity=1, response=1)\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", script, url + "/d"], env=environment(env), check=False)
    away = ["-o", "endpoint_url=http://127.0.0.1:9", "-o", "replaypack.retry_seconds=0"]
    result = run("recover", url + "/d", *away, env=env)
    assert result.code == 2
    assert "journal kept" in result.out + result.err
    result = run("recover", url + "/d", env=env)
    assert (result.code, result.out) == (0, "dead: 1 record, 1 of them from the journal\n")


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("replaypack.retry_seconds=abc", "replaypack.retry_seconds' must be a number, not text"),
        ("replaypack.retry_secs=3", "did you mean retry_seconds?"),
        ("replaypack=3", "'replaypack' is not a mapping"),
        ("foo=bar", "no storage option 'foo'"),
        ("endpoint_url=127.0.0.1:5599", "endpoint_url=http://"),
    ],
)
def test_a_wrong_option_is_named(option: str, says: str) -> None:
    pytest.importorskip("s3fs")
    result = run("ls", "s3://b/x", "-o", "key=AKIA", "-o", "secret=hunter2", "-o", option)
    assert (result.code, result.out) == (2, "")
    [line] = result.err.splitlines()
    assert says in line
    assert "s3://b/x" in line
    assert "TypeError" not in line
    assert "hunter2" not in line
