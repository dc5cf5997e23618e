"""The server as an OAuth 2.1 resource server: which access tokens it admits, and what it tells clients about itself."""

import base64
import hmac
import json
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cavemem_mcp import InvalidArgumentsError, oauth
from cavemem_mcp.oauth import KEYS_FETCH_SECONDS_MIN, JwtVerifier, store_of_subject
from tests.remote.server import RemoteServer, poll, remote_server
from tests.server.processes import FACT, call, ping

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "https://memory.example/mcp"
METADATA: Final = "https://memory.example/.well-known/oauth-protected-resource/mcp"
KEYS: Final[dict[str, Any]] = {
    "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
OTHER_KEY: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _jwk(algorithm: str, key: Any, kid: str | None = None) -> dict[str, Any]:
    converter = jwt.get_algorithm_by_name(algorithm)
    return {**converter.to_jwk(key.public_key(), as_dict=True), "kid": kid or algorithm, "use": "sig"}


def _key_set() -> dict[str, Any]:
    return {"keys": [_jwk(algorithm, key) for algorithm, key in KEYS.items()]}


def _token(
    subject: object = "alice", *, algorithm: str = "RS256", key: Any = None, kid: str | None = None, **claims: Any
) -> str:
    """Return a token that is good but for what is asked for; a claim of None is left out."""
    payload = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": subject,
        "exp": int(time.time()) + 600,
        "scope": "cavemem:read cavemem:write",
        **claims,
    }
    return jwt.PyJWS().encode(
        json.dumps({name: value for name, value in payload.items() if value is not None}).encode(),
        KEYS[algorithm] if key is None else key,
        algorithm=algorithm,
        headers={"kid": kid or algorithm},
    )


def _options(keys: str) -> list[str]:
    return ["--oauth-issuer", ISSUER, "--oauth-audience", AUDIENCE, "--oauth-jwks", keys]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RemoteServer]:
    folder = tmp_path_factory.mktemp("oauth")
    (folder / "keys.json").write_text(json.dumps(_key_set()))
    with remote_server(
        folder / "home", *_options(str(folder / "keys.json")), "--allowed-host", "memory.example"
    ) as server:
        yield server


@pytest.mark.parametrize("algorithm", KEYS)
@pytest.mark.parametrize(
    "claims", [{}, {"aud": ["https://other.example", AUDIENCE]}, {"scope": None, "scp": ["cavemem:read"]}]
)
def test_a_token_of_the_issuer_for_this_server_is_admitted(
    server: RemoteServer, algorithm: str, claims: dict[str, Any]
) -> None:
    assert server.post(_token(algorithm=algorithm, **claims), ping(1)).status_code == 200


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _head(algorithm: str) -> str:
    return _encoded(json.dumps({"alg": algorithm, "typ": "JWT", "kid": "RS256"}).encode())


def _unsigned() -> str:
    _, payload, _ = _token().split(".")
    return f"{_head('none')}.{payload}."


def _signed_with_the_public_key() -> str:
    """Return the classic forgery: the public key used as if it were a shared secret."""
    public = KEYS["RS256"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    _, payload, _ = _token().split(".")
    signed = f"{_head('HS256')}.{payload}"
    return f"{signed}.{_encoded(hmac.digest(public, signed.encode(), 'sha256'))}"


@pytest.mark.parametrize(
    "token",
    [
        _token(iss="https://evil.example"),
        _token(iss=ISSUER + "/"),
        _token(aud="https://other.example/mcp"),
        _token(aud=None),
        _token(iss=None),
        _token(exp=None),
        _token(None),
        _token(7),
        _token(""),
        _token(exp=int(time.time()) - 60),
        _token(nbf=int(time.time()) + 600),
        _token(key=OTHER_KEY),
        _token(kid="unknown"),
        _token(algorithm="ES256", kid="RS256"),
        _unsigned(),
        _signed_with_the_public_key(),
        _token() + "x",
        _token().rpartition(".")[0] + ".",
        "x.y.z",
        "....",
        base64.urlsafe_b64encode(b"[" * 4000).decode(),
    ],
)
def test_any_other_token_is_refused_with_the_way_to_a_good_one(server: RemoteServer, token: str) -> None:
    response = server.post(token, ping(1))
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == (
        f'Bearer error="invalid_token", error_description="Authentication required", resource_metadata="{METADATA}"'
    )


def test_the_algorithms_are_public_key_ones_whatever_the_key_says(server: RemoteServer) -> None:
    pss = jwt.encode({"iss": ISSUER, "aud": AUDIENCE, "sub": "a", "exp": 2**33}, KEYS["RS256"], algorithm="PS256")
    assert server.post(pss, ping(1)).status_code == 401


@pytest.mark.parametrize("scope", [None, "", "cavemem:write", "cavemem:reader", ["cavemem:write"], 7])
def test_a_token_without_the_scope_to_read_is_forbidden_everything(server: RemoteServer, scope: Any) -> None:
    response = server.post(_token(scope=scope), ping(1))
    assert response.status_code == 403
    assert response.headers["www-authenticate"] == (
        'Bearer error="insufficient_scope", error_description="Required scope: cavemem:read", '
        f'resource_metadata="{METADATA}"'
    )


def test_a_token_with_the_scope_to_read_alone_cannot_write(server: RemoteServer) -> None:
    reader = _token("erin", scope="openid cavemem:read")
    assert server.tool(reader, "remember", text=FACT)["error"] == "cave_forbidden"
    server.tool(_token("erin"), "remember", text=FACT)
    assert server.recalled(reader, "webshop") == [FACT]


def test_each_subject_has_a_store_that_does_not_show_who_it_is(server: RemoteServer) -> None:
    server.tool(_token("frank"), "remember", text=FACT)
    assert server.recalled(_token("grace"), "webshop") == []
    assert server.recalled(_token("frank"), "webshop") == [FACT]
    assert (server.home / "stores" / store_of_subject(ISSUER, "frank") / "mem" / "mem.db").exists()
    assert "frank" not in "".join(str(path) for path in server.home.rglob("*")) + server.errors()
    assert store_of_subject("a", "bc") != store_of_subject("ab", "c")


def test_the_metadata_tell_a_client_where_tokens_come_from(server: RemoteServer) -> None:
    with server.client() as client:
        metadata = client.get("/.well-known/oauth-protected-resource/mcp", headers={"Host": "memory.example"})
    assert metadata.status_code == 200
    described = metadata.json()
    assert described["resource"] == AUDIENCE
    assert described["authorization_servers"] == [ISSUER]
    assert described["scopes_supported"] == ["cavemem:read", "cavemem:write"]
    assert described["bearer_methods_supported"] == ["header"]


class _Issuer:
    """Where an issuer's keys are, on loopback; counts how often they are fetched."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] | None = _key_set()
        self.answer: bytes | None = None
        self.goes_on = threading.Event()
        self.fetches = 0
        self.goes_on.set()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.fetches += 1
                self.send_response(500 if issuer.keys is None else 200)
                self.end_headers()
                with suppress(OSError):
                    while not issuer.goes_on.wait(0.02):
                        self.wfile.write(b" ")
                    self.wfile.write(json.dumps(issuer.keys).encode() if issuer.answer is None else issuer.answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"


@contextmanager
def _issuer() -> Generator[_Issuer]:
    issuer = _Issuer()
    with issuer.server:
        thread = threading.Thread(target=issuer.server.serve_forever)
        thread.start()
        try:
            yield issuer
        finally:
            issuer.goes_on.set()
            issuer.server.shutdown()
            thread.join()


@pytest.fixture
def issuer() -> Generator[_Issuer]:
    with _issuer() as issuer:
        yield issuer


def test_the_keys_at_a_url_are_fetched_once_for_many_tokens(tmp_path: Path, issuer: _Issuer) -> None:
    with remote_server(tmp_path / "home", *_options(issuer.url)) as server:
        assert issuer.fetches == 0
        for subject in ("a", "b", "c"):
            server.tool(_token(subject, algorithm="EdDSA"), "remember", text=FACT)
        assert issuer.fetches == 1


async def test_an_unknown_key_is_looked_up_but_not_at_the_rate_of_the_clients(
    issuer: _Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, because the time between two fetches passes in no test's time."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    verifier = JwtVerifier(issuer=ISSUER, audience=AUDIENCE, keys=issuer.url)
    assert await verifier.verify_token(_token()) is not None
    for number in range(20):
        assert await verifier.verify_token(_token(kid=f"guess-{number}")) is None
    assert issuer.fetches == 1

    issuer.keys = {"keys": [_jwk("RS256", OTHER_KEY, "new")]}
    rotated = _token(key=OTHER_KEY, kid="new")
    assert await verifier.verify_token(rotated) is None
    now += KEYS_FETCH_SECONDS_MIN
    assert await verifier.verify_token(rotated) is not None
    assert await verifier.verify_token(_token()) is None, "a key that was taken back admits nobody"
    assert issuer.fetches == 2


async def test_an_issuer_that_is_down_admits_nobody_and_is_left_in_peace(
    issuer: _Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    verifier = JwtVerifier(issuer=ISSUER, audience=AUDIENCE, keys=issuer.url)
    issuer.keys, good = None, issuer.keys
    for _ in range(5):
        assert await verifier.verify_token(_token()) is None
    assert issuer.fetches == 1
    issuer.keys = good
    now += KEYS_FETCH_SECONDS_MIN
    assert await verifier.verify_token(_token()) is not None


GARBAGE: Final = {
    "nothing": b"",
    "a page": b"<html>",
    "bytes": b"\xff\xfe\0",
    "a list": b"[1]",
    "null": b"null",
    "no keys": b'{"keys": []}',
    "a number of keys": b'{"keys": 5}',
    "keys that are none": b'{"keys": [5, {}, {"kty": "RSA", "n": 5, "e": {}}]}',
    "a secret": b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "RS256"}]}',
    "nesting": b"[" * 100_000,
    "too much": b" " * 10_000_000 + b"{}",
}


@pytest.mark.parametrize("kind", GARBAGE)
async def test_an_issuer_that_answers_garbage_admits_nobody(
    issuer: _Issuer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    verifier = JwtVerifier(issuer=ISSUER, audience=AUDIENCE, keys=issuer.url)
    issuer.answer = GARBAGE[kind]
    assert await verifier.verify_token(_token()) is None
    issuer.answer = None
    now += KEYS_FETCH_SECONDS_MIN
    assert await verifier.verify_token(_token()) is not None
    issuer.answer = GARBAGE[kind]
    now += KEYS_FETCH_SECONDS_MIN
    assert await verifier.verify_token(_token(kid="unknown")) is None
    assert await verifier.verify_token(_token()) is not None, "the keys that were good still are"
    assert issuer.fetches == 3


async def test_an_issuer_that_answers_byte_by_byte_is_not_waited_for(
    issuer: _Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth, "KEYS_FETCH_TIMEOUT_SECONDS", 0.3)
    issuer.goes_on.clear()
    with anyio.fail_after(10):
        assert await JwtVerifier(issuer=ISSUER, audience=AUDIENCE, keys=issuer.url).verify_token(_token()) is None


def test_tokens_with_unknown_keys_keep_nobody_waiting_while_the_issuer_is_slow(tmp_path: Path, issuer: _Issuer) -> None:
    """More of them than there are worker threads, of which readiness needs one."""
    issuer.goes_on.clear()
    with remote_server(tmp_path, *_options(issuer.url)) as server, ThreadPoolExecutor(50) as callers:
        guesses = [callers.submit(server.post, _token(kid=f"guess-{number}"), ping(1)) for number in range(50)]
        poll(lambda: issuer.fetches == 1)
        with server.client() as client:
            assert client.get("/readyz").status_code == 200
        assert not any(guess.done() for guess in guesses)
        issuer.goes_on.set()
        assert {guess.result().status_code for guess in guesses} == {401}
    assert issuer.fetches == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": "missing.json"}, "cannot be read"),
        ({"keys": "pyproject.toml"}, "no JSON Web Key Set"),
        ({"keys": "http://issuer.example/keys"}, "must be https"),
        ({"audience": "memory"}, "--oauth-audience: must be"),
        ({"audience": "https://"}, "--oauth-audience: must be"),
        ({"issuer": "issuer"}, "--oauth-issuer: must be"),
    ],
)
def test_settings_that_admit_nobody_are_refused(options: dict[str, str], message: str) -> None:
    given = {"issuer": ISSUER, "audience": AUDIENCE, "keys": "https://issuer.example/keys"}
    JwtVerifier(**given)
    with pytest.raises(InvalidArgumentsError, match=message):
        JwtVerifier(**{**given, **options})


@pytest.mark.parametrize(
    "keys", ["{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "[1]", "null", '{"keys": 5}']
)
def test_a_file_without_public_keys_is_refused(tmp_path: Path, keys: str) -> None:
    (tmp_path / "keys.json").write_text(keys)
    with pytest.raises(InvalidArgumentsError, match="no JSON Web Key Set"):
        JwtVerifier(issuer=ISSUER, audience=AUDIENCE, keys=str(tmp_path / "keys.json"))


def test_a_write_is_refused_before_its_arguments_are_looked_at(server: RemoteServer) -> None:
    response = server.post(_token("h", scope="cavemem:read"), call("forget", {"no": "such"}))
    assert response.json()["result"]["structuredContent"]["error"] == "cave_forbidden"
