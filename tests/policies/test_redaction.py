"""What redaction removes, what it leaves alone, and that it takes time in proportion."""

from __future__ import annotations

import base64
import gzip
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from replaypack import Archive, key_digest
from replaypack._plain import pointer
from replaypack.errors import FormatError, InvalidNameError, UsageError
from replaypack.policies._bodies import MAX_UNFOLDED, tempting
from replaypack.policies._names import NAMES, PLACEHOLDER, QUERY_NAMES, NameRules, fold, words
from replaypack.policies._texts import has_names
from replaypack.policies.redaction import (
    DEFAULT,
    VALUES_ONLY,
    RedactionPolicy,
    Redactor,
    secrets_of_environment,
)
from tests.policies.canaries import KNOWN, known_values, named_values

ROOT = Path(__file__).parents[2]
P = PLACEHOLDER
REDACTED, TRANSFORMED = 1, 2

SENSITIVE = """authorization Authorization proxy-authorization X-API-Key x_api_key api_key apikey api-key apiKey APIKey
OPENAI_API_KEY openAIApiKey access_token accessToken refresh_token id_token client_secret clientSecret password Passwd
db_password DB-PASSWORD password2 secret user_secret private_key privateKey session_token cookie Set-Cookie
aws_secret_access_key AWS_SECRET_ACCESS_KEY x-goog-api-key X-Amz-Security-Token x-auth-token csrf_token
PRIVATE-TOKEN Ocp-Apim-Subscription-Key passphrase webhook_secret""".split()
HARMLESS = """page_token next_page_token nextPageToken max_tokens total_tokens prompt_tokens token tokens auth_method
token_count secretary key keys primary_key keyboard monkey secrets secret_name password_hash password_policy
aws_access_key_id api_key_id private_key_id signature valid_token bid_token authorization_url cookie_policy author
credentials session_id access grant_type token_type public_key cache_key idempotency_key passport compassword""".split()


@pytest.mark.parametrize("name", SENSITIVE)
def test_names_that_are_secrets(name: str) -> None:
    assert Redactor().redact({"a": [{name: "x"}]}) == {"a": [{name: P}]}
    assert has_names(f'"{name}"'.lower())
    body = json.dumps({name: "x", "n": 1.50})
    assert Redactor().redact(body) == json.dumps({name: P, "n": 1.5})
    assert P in Redactor().redact(f"https://example.com/?a=1&{name}=x")


@pytest.mark.parametrize("name", HARMLESS)
def test_names_that_are_none(name: str) -> None:
    for value in ({name: "some text"}, json.dumps({name: "some text"}), f"the {name}: some text", {"required": [name]}):
        assert Redactor().process(value) == (value, 0)
    if fold(name) not in QUERY_NAMES:
        assert Redactor().redact(f"https://example.com/?{name}=x") == f"https://example.com/?{name}=x"


def test_the_quick_look_sees_every_name_of_the_list() -> None:
    for name in NAMES:
        assert fold(name) == name
        assert words(name) == [name]
        assert has_names(name)
        assert NameRules().sensitive(name)


@pytest.mark.parametrize("document", ["spec/registry.md", "docs/redaction.md"])
def test_the_lists_in_the_documents_are_those_of_the_code(document: str) -> None:
    text = (ROOT / document).read_text()
    for label, names in (("names", NAMES), ("query names", QUERY_NAMES)):
        match = re.search(rf"<!-- {label} -->(.*?)<!-- end -->", text, re.DOTALL)
        assert match is not None, label
        assert set(re.findall(r"`([a-z]+)`", match[1])) == names


@pytest.mark.parametrize("value", [None, True, False, "", b"", [], {}, [None], P, P.encode(), [P]])
def test_what_holds_no_secret_stays(value: Any) -> None:
    whole = {"password": value}
    result, bits = Redactor().process(whole)
    assert result is whole
    assert bits == 0


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ("x", P), (b"x", P.encode()), (5, P), (1.5, P), (["a", "b"], [P]), ([b"a"], [P.encode()]), ({"a": "b"}, P),
        (("a",), [P]), ([{"name": "a"}], [P]),
    ],
)  # fmt: skip
def test_the_placeholder_does_not_depend_on_the_secret(value: Any, hidden: Any) -> None:
    assert Redactor().redact({"api_key": value}) == {"api_key": hidden}
    assert Redactor(secrets=["another-secret"]).redact({"api_key": value}) == {"api_key": hidden}


def test_schemas_are_not_values() -> None:
    schema = {
        "type": "object",
        "properties": {
            "password": {"type": "string", "description": "the password", "minLength": 8},
            "api_key": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["password", "api_key"],
    }
    for value in (schema, json.dumps(schema), [json.dumps(schema, indent=2)], str(schema), {"password": schema}):
        assert Redactor().process(value) == (value, 0)
    schema["properties"]["password"]["default"] = "hunter2"  # type: ignore[index]
    assert "hunter2" not in str(Redactor().redact(schema))


UNTOUCHED = [
    "The password: it must be long. Secret agents like cookies, and tokens; authorization is needed.",
    "Use the Bearer scheme, as in Authorization: Bearer <token>; see also Basic authentication.",
    "task-oriented risk-averse sk-learn-is-a-library-with-a-long-name, AKIA, eyJ, ghp_ and xoxb",
    "https://example.com/a@b?page=2&q=secret&sort=token#x and mailto:user@example.com, http://host:8080/p@th",
    'data = {"max_tokens": 5, "next_page_token": "abc", "usage": {"total_tokens": 9}}',
    "call_0123456789abcdef0123456789abcdef 3f2504e0-4f89-11d3-9a0c-0305e82c3301 deadbeefdeadbeefdeadbeef",
    "for key in keys: print(key, tokens[key]); password_hash = bcrypt(secret_name)",
    base64.b64encode(bytes(range(256)) * 20).decode(),
    "data:image/png;base64," + base64.b64encode(b"\x89PNG" + bytes(range(256)) * 40).decode(),
    gzip.compress(b'{"max_tokens": 1}', mtime=0),
    b"\x89PNG password=x \xff\xfe",
]


@pytest.mark.parametrize("value", UNTOUCHED)
def test_what_is_no_secret_comes_back_as_the_same_object(value: Any) -> None:
    for whole in (
        value,
        [value],
        {"a": {"b": value}},
        json.dumps({"text": value}) if isinstance(value, str) else value,
    ):
        result, bits = Redactor(secrets=["a known secret"]).process(whole)
        assert result is whole
        assert bits == 0


TOKENS = [
    "sk-" + "aB3d" * 12, "sk-ant-api03-" + "aB3-_" * 18, "sk-proj-" + "x9Y" * 20, "ghp_" + "aB3d" * 9,
    "github_pat_" + "aB3d_" * 16, "glpat-" + "aB3d" * 5, "AKIAIOSFODNN7EXAMPLE", "AIza" + "aB3d_-9" * 5,
    "xoxb-123456789012-abcdefABCDEF", "sk_live_" + "aB3d" * 6, "hf_" + "aB3d" * 9, "npm_" + "aB3d" * 9,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\\nMIIEow==\\n-----END PRIVATE KEY-----",
]  # fmt: skip


@pytest.mark.parametrize("token", TOKENS)
def test_forms_of_tokens(token: str) -> None:
    assert Redactor().process(f"see {token}.") == (f"see {P}.", REDACTED)
    assert Redactor().redact({f"{token} k": 1}) == {f"{P} k": 1}
    assert Redactor(VALUES_ONLY).process(token) == (token, 0)


def test_flags() -> None:
    body = b'{"password": "x"}'
    assert Redactor().process({"b": body}) == ({"b": b'{"password": "%s"}' % P.encode()}, REDACTED)
    clean = b'{"password": "%s"}' % P.encode()
    assert Redactor().process(gzip.compress(body)) == (clean, REDACTED | TRANSFORMED)
    assert Redactor().process(base64.b64encode(body).decode()) == (clean.decode(), REDACTED | TRANSFORMED)


def test_keys_that_become_equal_lose_nothing() -> None:
    known = Redactor(secrets=["secret-a", "secret-b"])
    assert known.redact({"secret-a": 1, "secret-b": 2, P: 3}) == {f"{P} 2": 1, f"{P} 3": 2, P: 3}


def test_json_keeps_its_layout() -> None:
    for text in (
        '{\n  "a": [1, 2.5, null],\n  "password": "x"\n}\n',
        '{"a":[1,2],"password":"x","é":"ü"}',
        ' {"a": "\\u00e9", "password": "x"}',
    ):
        assert Redactor().redact(text) == text.replace('"x"', f'"{P}"')
    twice = '{"a": 1, "a": 2, "password": "x"}'
    assert Redactor().redact(twice) == twice.replace('"x"', f'"{P}"')


def test_compressed_bodies_are_unfolded_within_bounds() -> None:
    bomb = gzip.compress(bytes(MAX_UNFOLDED + 1))
    assert Redactor().process(bomb) == (bomb, 0)
    nested = gzip.compress(gzip.compress(b'{"password": "x"}'))
    assert Redactor().redact(nested) == b'{"password": "%s"}' % P.encode()
    cut = gzip.compress(b'{"password": "' + b"x" * 100 + b'"}' + bytes(range(256)))[:-60]
    assert b"xx" not in Redactor().redact(cut)


def test_objects_become_plain_and_what_cannot_be_stored_is_left_to_be_refused() -> None:
    class Options(msgspec.Struct):
        api_key: str
        n: int = 1

    assert Redactor().redact(Options("x")) == {"api_key": P, "n": 1}
    unknown = object()
    value = [unknown, {"password": "x"}]
    assert Redactor().redact(value) is value
    loop: list[Any] = []
    loop.append(loop)
    assert Redactor().redact(loop) is loop


def test_a_value_learned_later_is_removed_from_then_on() -> None:
    redactor = Redactor()
    assert redactor.redact("it is s3cret!") == "it is s3cret!"
    assert redactor.learn("s3cret")
    assert not redactor.learn("s3cret")
    assert redactor.redact("it is s3cret!") == f"it is {P}!"
    assert "s3cret" not in repr(redactor) + repr(redactor._state)


@pytest.mark.parametrize("secrets", [["short"], "just one text", [5]])
def test_unsound_secrets(secrets: Any) -> None:
    with pytest.raises(UsageError) as error:
        Redactor(secrets=secrets)
    assert "short" not in str(error.value).replace("shorter", "")


def test_secrets_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "from-the-environment")
    monkeypatch.setenv("SOME_TOKEN", "a-token-of-it")
    monkeypatch.setenv("SOME_SECRET", "abc")
    monkeypatch.setenv("SOME_PATH", "/usr/bin/something")
    found = secrets_of_environment()
    assert {"from-the-environment", "a-token-of-it"} <= set(found)
    assert not {"abc", "/usr/bin/something"} & set(found)
    assert secrets_of_environment(["SOME_PATH"]) == ["/usr/bin/something"]
    with pytest.raises(UsageError, match="NOT_SET"):
        secrets_of_environment(["NOT_SET"])
    monkeypatch.setenv("EMPTY", "")
    assert secrets_of_environment(["SOME_PATH", "EMPTY"]) == ["/usr/bin/something"]
    with pytest.raises(UsageError, match="SOME_SECRET has 3 bytes") as error:  # else it would stay, and nobody know
        secrets_of_environment(["SOME_SECRET"])
    assert "abc" not in str(error.value)


def test_policies_in_manifests() -> None:
    own = RedactionPolicy(name="x-acme", names=("employee_id",), keep=("session_token",), prefixes=("acme-",))
    for policy in (DEFAULT, VALUES_ONLY, own):
        assert RedactionPolicy.from_data(json.loads(json.dumps(policy.to_data()))) == policy
    assert RedactionPolicy.from_data({"name": "none", "version": 1}) is None
    for unknown in (
        {"name": "default", "version": 2},
        {"name": "x-acme", "version": 1},
        {"name": "x-a", "version": 1, "rules": {"names": [5]}},
        {"name": "x-a", "version": 1, "rules": {"patterns": ["(a+)+"]}},
    ):
        with pytest.raises(FormatError) as error:
            RedactionPolicy.from_data(unknown)
        assert error.value.reason == "future_version"
    redactor = Redactor(own)
    value = {"Employee-Id": 7, "session_token": "s", "password": "p", "t": "acme-0123456789ab"}
    assert redactor.redact(value) == {"Employee-Id": P, "session_token": "s", "password": P, "t": P}
    for unsound in (
        {"name": "mine", "names": ("a",)},
        {"prefixes": ("(",)},
        {"prefixes": ("red",)},
        {"names": ("",)},
        {"names": "password"},
    ):
        with pytest.raises(UsageError):
            RedactionPolicy(**unsound)  # type: ignore[arg-type]


def test_policies_of_recordings(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    own = RedactionPolicy(name="x-acme", names=("employee_id",))
    identity = {"employee_id": 7, "password": "p"}
    for name, policy in (("none", None), ("default", DEFAULT), ("own", own)):
        with archive.recorder(name, redact=policy) as recorder:
            recorder.append(kind="tool", identity=identity, response=1)
        with archive.recorder(name, if_exists="append") as recorder:
            recorder.append(kind="tool", identity=identity, response=2)
        recording = archive.open(name)
        assert recording.count("tool", identity) == 2
        assert recording.count("tool", {**identity, "password": "other"}) == (0 if policy is None else 2)
        assert recording.key_of("tool", identity) == key_digest("tool", recording.record(0).request)
        assert not list(archive.verify(name))
    assert archive.open("own").record(0).request == {"employee_id": P, "password": P}
    assert archive.open("none").record(1).request == identity
    with pytest.raises(UsageError, match="x-acme"):
        archive.recorder("own", if_exists="append", redact=None)
    with archive.recorder("values", redact=None, secrets=["known-one"]) as recorder:
        recorder.append(kind="tool", identity={"password": "p", "x": "known-one"}, response=1)
    assert archive.open("values").record(0).request == {"password": "p", "x": P}
    assert archive.open("values").manifest.content.redaction.name == "values"
    with pytest.raises(InvalidNameError):
        archive.recorder("runs/known-one", secrets=["known-one"])


def test_many_threads_share_one_redactor() -> None:
    redactor = Redactor()
    wrong: list[Any] = []

    def work(number: int) -> None:
        for step in range(200):
            secret = f"learned-{number}-{step}"
            if step % 50 == 0:
                redactor.learn(secret)
            out = redactor.redact({"a": f"text {step}", "api_key": secret, "b": secret})
            if out["api_key"] != P or out["a"] != f"text {step}" or (step % 50 == 0 and out["b"] != P):
                wrong.append(out)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(max_size=8) | st.sampled_from(SENSITIVE + HARMLESS), inner, max_size=5)
    ),
    max_leaves=30,
)


def _base64(text: str, *, packed: bool = False, data_url: bool = False) -> str:
    data = text.encode("utf-8", "replace")
    encoded = base64.b64encode(gzip.compress(data, mtime=0) if packed else data).decode()
    return "data:text/plain;base64," + encoded if data_url else encoded


FIELDS = st.sampled_from([*SENSITIVE, *HARMLESS, "thing", "cookies", "name", "value", "key", "sig", "type", "default"])
PARTS = st.sampled_from(
    [*TOKENS, *named_values("hunter2-77").values(), *known_values(KNOWN[0]).values(), P, f"x{P}", f'"{P}"', "hunter2"]
    + [
        "",
        "x",
        'a"b',
        "\\",
        "=",
        "bearer abcdefgh12345678",
        "red-0123456789abcdef",
        "u:p@h",
        "\r\n",
        "{",
        "QUJD" * 1100,
    ]
    + [_base64(f'{{"password": "hunter2", "x": "{"y" * size}"}}') for size in (0, 4000)]
)
#: Sentences, headers, URLs, forms, in each other and in whatever hides them.
TEXTS = st.recursive(
    PARTS.filter(lambda part: isinstance(part, str)),
    lambda inner: (
        st.builds(str.join, st.sampled_from(["", ", ", "\n", ";", "&"]), st.lists(inner, min_size=2, max_size=3))
        | st.builds(
            str.format,
            st.sampled_from(
                [
                    "{0}={1}", "{0}: {1}", '{{"{0}": "{1}"}}', "https://u:{1}@h/p?{0}={1}", "curl -H '{0}: {1}' x",
                    '--b\r\nContent-Disposition: form-data; name="{0}"\r\n\r\n{1}\r\n--b--', "Bearer {1}",
                    'x;{0}={1}', '[["{0}", "{1}"]]', "{{'name': '{0}', 'value': '{1}'}}",
                ]
            ),
            FIELDS,
            inner,
        )
        | st.builds(_base64, inner, packed=st.booleans(), data_url=st.booleans())
        | st.builds(lambda name, text, show: show({name: text}), FIELDS, inner, st.sampled_from([json.dumps, repr]))
    ),
    max_leaves=6,
)  # fmt: skip
CALLS = st.recursive(
    PARTS | TEXTS | TEXTS.map(lambda text: text.encode("utf-8", "replace")) | st.sampled_from([None, True, 5, 1.5]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(FIELDS, inner).map(lambda pair: [list(pair)])
        | st.builds(lambda name, value: {"name": name, "value": value}, FIELDS, inner)
        | st.dictionaries(FIELDS | TEXTS, inner, max_size=3)
    ),
    max_leaves=8,
)


PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"


def test_a_private_key_in_a_query_goes_as_a_whole() -> None:
    redacted = Redactor(DEFAULT).redact(f"https://u:{PEM}@h/p?authorization={PEM}&q=1")
    assert redacted == "https://u:__redacted__@h/p?authorization=__redacted__&q=1"


@pytest.mark.parametrize("policy", [DEFAULT, RedactionPolicy(names=("thing",), keep=("password",), prefixes=("red-",))])
@given(value=VALUES | CALLS)
@example(value={"client_secret=__redacted__&scope=y": 1, "data:text/plain;base64,aGVsbG8gd29ybGQ=": 2})
@example(value={f"https://u:{PEM}@h/p?authorization={PEM}": "x"})
@example(value="https://u:" + _base64('{"n": 6, "secret": "hunter2"}', packed=True) + "@h")
def test_redacting_again_changes_nothing(policy: RedactionPolicy, value: Any) -> None:
    """Whoever replays may take a call that equals a recorded one for that, without a look for secrets."""
    for secrets in ([], [KNOWN[0]]):
        once = Redactor(policy, secrets=secrets).redact(value)
        again, bits = Redactor(policy).process(once)
        assert again is once
        assert bits == 0


@given(st.binary(min_size=12, max_size=60))
def test_the_quick_look_at_base64_misses_no_readable_text(data: bytes) -> None:
    readable = bytes(byte % 95 + 32 for byte in data)
    assert tempting(base64.b64encode(readable).decode())
    assert tempting(base64.b64encode(gzip.compress(data)).decode())


@pytest.mark.parametrize(
    "text",
    [
        '"password": "', "'password': [", "bearer ", "://a:", "-----BEGIN PRIVATE KEY-----", "eyJaaaaaaaa.", "api_key=",
        '\\"secret\\": \\"', 'form-data; name="password"\\n a', "authorization: ", '{"cookie": ', "sk-a1", "&token=",
        '{"name": "password", ', "a" * 63 + "=", '"a', "\\\\\\", "x-" * 4, "AKIA", "base64,ewo", "[[", ";password=",
    ],
)  # fmt: skip
def test_hostile_texts_take_time_in_proportion(text: str) -> None:
    """Each of these would take hours if any rule looked at what it has passed again and again."""
    for whole in (text * (400_000 // len(text)), '{"password": ' + text * (400_000 // len(text))):
        Redactor(secrets=["known-secret"]).redact(whole)
        Redactor().redact(whole.encode())


def _differences(a: Any, b: Any, path: Any = None) -> list[Any]:
    if type(a) is dict and type(b) is dict and list(a) == list(b):
        return [found for key in a for found in _differences(a[key], b[key], (path, key))]
    if type(a) is list and type(b) is list and len(a) == len(b):
        return [found for n in range(len(a)) for found in _differences(a[n], b[n], (path, n))]
    return [] if type(a) is type(b) and a == b else [path]


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["crewai", "openllmetry", "swe-agent", "tau-bench"])
def test_of_a_corpus_only_secrets_change(name: str) -> None:
    from benchmarks.corpora import corpus

    recorded = corpus(name)
    if recorded is None:
        pytest.skip("the corpora are not here: set REPLAYPACK_CORPORA to the directory of the .tar.zst files")
    redactor, finder = Redactor(), Redactor()
    places: set[str] = set()
    for call in recorded:
        for value in (call.request, call.response):
            redacted = redactor.redact(value)
            notes = {pointer(note.path) for note in finder.find(value)}
            for path in _differences(value, redacted):
                place = pointer(path)
                assert any(place.startswith(note) or note.startswith(place) for note in notes)
                parts = place.lower().split("/")
                places.add(parts[2] if parts[1] == "headers" else place)
    allowed = "authorization cookie set-cookie x-api-key api-key x-goog-api-key x-amz-security-token /body /body/string"
    assert places <= set(allowed.split())


def test_the_python_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "redaction.md").read_text()
    names: dict[str, object] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    for block in blocks:
        exec(compile(block, "redaction.md", "exec"), names)


@given(
    before=st.binary(max_size=150),
    behind=st.binary(max_size=150),
    width=st.sampled_from([20, 64, 76]),
    end=st.sampled_from(["\n", "\r\n"]),
    around=st.sampled_from([("", ""), ("Content-Type: image/png\n\n", "\n\n--boundary"), ("word\n", "\n")]),
    place=st.sampled_from([str, str.encode, lambda text: {text: [text]}, lambda text: b"\xff\xfe" + text.encode()]),
)
def test_a_known_value_in_base64_that_is_broken_into_lines(
    before: bytes, behind: bytes, width: int, end: str, around: tuple[str, str], place: Callable[[str], Any]
) -> None:
    secret = b"canary-4f1c9a7be2-broken"
    coded = base64.b64encode(before + secret + behind).decode()
    text = around[0] + end.join(coded[at : at + width] for at in range(0, len(coded), width)) + around[1]
    redacted = Redactor(secrets=[secret]).redact(place(text))
    shown = repr(redacted).replace("\\r", "").replace("\\n", "")
    assert not any(base64.b64encode(bytes(n) + secret).decode()[4:-4] in shown for n in range(3))
    assert secret.decode() not in shown


def test_rules_of_a_policy_may_come_from_an_iterator() -> None:
    rules = {"names": ["employee_id"], "keep": ["password"], "prefixes": ["acme_"]}
    assert RedactionPolicy(**{label: iter(texts) for label, texts in rules.items()}).to_data()["rules"] == rules  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="are texts"):
        RedactionPolicy(names=5)  # type: ignore[arg-type]
