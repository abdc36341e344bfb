"""The README's Python runs, its commands exist, and the example does what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import replaypack

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(replaypack.__file__).parent.parent), "PYTHONIOENCODING": "utf-8"}


def test_the_python_of_the_readme_runs_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = [text for language, text in BLOCKS if language == "python"]
    local = [text for text in blocks if not re.search(r"\b(?:s3|gs|https)://", text)]
    assert len(local) >= 3
    names: dict[str, object] = {}
    for text in local:
        exec(compile(text, "README.md", "exec"), names)


def test_python_of_the_readme_that_needs_a_network_compiles() -> None:
    for language, text in BLOCKS:
        if language == "python":
            compile(text, "README.md", "exec")


def test_the_commands_of_the_readme_exist() -> None:
    pytest.importorskip("typer")
    from replaypack.cli._app import app

    known = {command.name for command in app.registered_commands}
    shown = set(re.findall(r"^replaypack ([a-z-]+)", "\n".join(t for lang, t in BLOCKS if lang == "sh"), re.MULTILINE))
    assert shown
    assert shown <= known
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", README)) <= targets


def test_every_feature_of_the_readme_has_the_test_that_it_names() -> None:
    tests = Path(__file__).parent
    written = "\n".join(path.read_text(encoding="utf-8") for path in tests.rglob("*.py"))
    defined = set(re.findall(r"def (test_\w+)", written))
    rows = README.split("## Features", 1)[1].split("\n## ", 1)[0].splitlines()
    named = [name for row in rows if row.startswith("|") for name in re.findall(r"`([^`]+)`", row.split("|")[2])]
    assert len(named) > 40
    for name in named:
        path, _, test = name.rpartition("::")
        if test.endswith((".py", "/")):
            assert any(str(found).endswith(test.rstrip("/")) for found in tests.rglob("*")), name
        else:
            assert test in defined, name
            assert not path or any(str(found).endswith(path) for found in tests.rglob("*.py")), name


def test_the_readme_has_a_place_for_the_benchmarks() -> None:
    assert README.index("<!-- benchmarks:begin -->") < README.index("<!-- benchmarks:end -->")


def test_the_example_records_and_replays(tmp_path: Path) -> None:
    archive = str(tmp_path / "demo")
    outputs = []
    for what in ("record", "replay"):
        command = [sys.executable, str(ROOT / "examples" / "agent.py"), what, archive]
        done = subprocess.run(command, env=environment(), capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.splitlines())
    assert outputs[0][1:] == outputs[1][1:]
    assert outputs[1][0].startswith("replayed")


def test_the_example_notices_a_recording_that_does_not_fit(tmp_path: Path) -> None:
    archive = replaypack.Archive(tmp_path)
    with archive.recorder("agents/expenses") as recorder:
        recorder.append(kind="lifecycle", key="transcript", response=[])
    command = [sys.executable, str(ROOT / "examples" / "agent.py"), "replay", str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 1
    assert "does not have this model call" in done.stderr


def test_manifests_are_read_by_other_tools(tmp_path: Path) -> None:
    with replaypack.Archive(tmp_path).recorder("a") as recorder:
        recorder.append(kind="tool", identity=1, response=2)
    document = json.loads((tmp_path / "recordings/a/latest.json").read_text())
    assert document["content"]["counts"] == {"tool": 1}
