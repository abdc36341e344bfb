"""Make the vectors of the format (chapters 01, 04 to 06, 08) from the code: ``python spec/vectors/generate.py``.

Every file comes out the same each time. A test compares what is committed with what this makes, so that neither
the code nor the vectors change unnoticed. The vectors of chapters 02 and 03 are made by hand and stay as they are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for entry in (ROOT / "src", Path(__file__).parent, ROOT / "spec" / "conformance"):
    if str(entry) not in sys.path:
        sys.path.insert(0, str(entry))

import build_archive  # noqa: E402
import build_audit  # noqa: E402
import build_documents  # noqa: E402
import build_invalid  # noqa: E402
import build_match  # noqa: E402
import build_partial  # noqa: E402
import build_redaction  # noqa: E402
import build_valid  # noqa: E402


def render(vector: dict[str, object]) -> bytes:
    """A vector file: one case a line."""
    cases = ",\n".join("    " + json.dumps(case, ensure_ascii=False) for case in vector["cases"])  # type: ignore[attr-defined]
    head = "".join(
        f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)},\n"
        for name, value in vector.items()
        if name != "cases"
    )
    return f'{{\n{head}  "cases": [\n{cases}\n  ]\n}}\n'.encode()


def valid() -> dict[str, dict[str, object]]:
    """The valid vectors but the archive."""
    return {
        "varints/varints": build_valid.varints(),
        "rows/rows": build_valid.rows(),
        "recipes/recipes": build_valid.recipes(),
        "base64/base64": build_valid.base64_runs(),
        "frames/frames": build_valid.frames(),
        "record_frames/record_frames": build_valid.record_frames(),
        "packs/packs": build_valid.packs(),
        "tables/tables": build_valid.tables(),
        "merkle/merkle": build_documents.merkle(),
        "summaries/summaries": build_documents.summaries(),
        "proofs/proofs": build_audit.proofs(),
        "signatures/signatures": build_audit.signatures(),
        "manifest/manifests": build_documents.manifests(),
        "manifest/markers": build_documents.markers(),
        "match/policies": build_match.policies(),
        "match/patterns": build_match.patterns(),
        "journal/journals": build_documents.journals(),
        "catalog/catalogs": build_documents.catalogs(),
        "names/names": build_documents.names(),
        "names/locators": build_documents.locators(),
        "redaction/keys": build_redaction.keys(),
        "redaction/names": build_redaction.names(),
        "redaction/policies": build_redaction.policies(),
    }


def generate() -> dict[str, bytes]:
    """Every generated file: path below this directory to its bytes."""
    files: dict[str, bytes] = {}
    for validity, vectors in (("valid", valid()), ("invalid", build_invalid.vectors())):
        for path, vector in vectors.items():
            feature = path.split("/")[0]
            files[f"{validity}/{path}.json"] = render({"feature": feature, **vector})
    files |= build_archive.files()
    files |= build_archive.placed(build_partial.WHERE, *build_partial.build())
    return files


def main() -> None:
    """Write the files, and remove what is not made any more."""
    here = Path(__file__).parent
    files = generate()
    for path, data in files.items():
        target = here / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != data:
            target.write_bytes(data)
            print("wrote", path)
    for path in stale(files):
        (here / path).unlink()
        print("removed", path)


def stale(files: dict[str, bytes]) -> list[str]:
    """Files of the generated features that are not made any more."""
    here = Path(__file__).parent
    features = {path.split("/")[1] for path in files}
    found = []
    for validity in ("valid", "invalid"):
        for feature in features:
            for path in (here / validity / feature).rglob("*"):
                relative = path.relative_to(here).as_posix()
                if path.is_file() and relative not in files:
                    found.append(relative)
    return sorted(found)


if __name__ == "__main__":
    main()
