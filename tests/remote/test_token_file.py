"""The token file: how entries are made, which files are refused, and who is admitted by it."""

import hashlib
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cavemem_mcp import InvalidArgumentsError
from cavemem_mcp.credentials import FILE_BYTES_MAX, find, new_credential, read_credentials
from tests.remote.server import RemoteServer, TokenFile, bearer, poll, remote_server
from tests.server.processes import FACT, call, command, ping

CHALLENGE = 'Bearer error="invalid_token", error_description="Authentication required"'
HASH = "0" * 64
ENTRY = f'[[token]]\nname = "a"\nsha256 = "{HASH}"\nstore = "s"\naccess = "read-only"\n'


def _token_new(*arguments: str) -> tuple[str, dict[str, Any]]:
    printed = subprocess.check_output(command("token", "new", *arguments), text=True)
    secret, _, entry = printed.partition("\n")
    return secret, tomllib.loads(entry)["token"][0]


def test_a_new_token_is_printed_once_with_its_entry() -> None:
    secret, entry = _token_new("laptop")
    assert re.fullmatch(r"cavemem_[\w-]{43}", secret)
    assert entry == {
        "name": "laptop",
        "sha256": hashlib.sha256(secret.encode()).hexdigest(),
        "store": "laptop",
        "access": "read-write",
    }
    assert _token_new("laptop")[0] != secret


def test_a_new_token_can_share_a_store_and_only_read() -> None:
    _, entry = _token_new("reader", "--store", "team", "--read-only")
    assert (entry["store"], entry["access"]) == ("team", "read-only")


@pytest.mark.parametrize(
    "arguments",
    [[], ["new"], ["old", "x"], ["new", "x", "y"], ["new", "../x"], ["new", "X"], ["new", "x", "--store", "a/b"]],
)
def test_a_senseless_token_is_refused(arguments: list[str]) -> None:
    finished = subprocess.run(command("token", *arguments), capture_output=True, check=False)
    assert (finished.returncode, finished.stdout) == (1, b"")


def test_a_new_entry_admits_its_secret_and_no_other(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.toml")
    secret = tokens.add("laptop", store="team")
    tokens.add("other")
    credentials = read_credentials(tokens.path)
    found = find(credentials, secret)
    assert found is not None
    assert (found.name, found.store, found.may_write) == ("laptop", "team", True)
    for guess in (secret[:-1], secret + "a", found.sha256, "", new_credential("laptop")[0], "\ud800"):
        assert find(credentials, guess) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[token", "not valid TOML"),
        ("cavemem_secret\n\n" + ENTRY, "not valid TOML"),
        ("x = " + "[" * 5000, "not valid TOML"),
        ("[tokens]", "may hold"),
        ("token = 1", "may hold"),
        ("token = [1]", "entry 1 is not a table"),
        (ENTRY + 'admin = "yes"', "no more"),
        ("[[token]]\nname = 'a'", "needs name"),
        (ENTRY.replace(HASH, HASH[1:]), "64 lower-case hex digits"),
        (ENTRY.replace(f'"{HASH}"', "0"), "64 lower-case hex digits"),
        (ENTRY.replace("read-only", "admin"), "access must be"),
        (ENTRY.replace('"s"', '"../s"'), "store: must be 1 to 64"),
        (ENTRY.replace('"a"', '"A B"'), "name: must be 1 to 64"),
        (ENTRY + "expires = 2030-01-01", "with its zone"),
        (ENTRY + "expires = 2030-01-01T00:00:00", "with its zone"),
        (ENTRY + ENTRY, "the same name"),
        (ENTRY + ENTRY.replace('"a"', '"b"'), "the same sha256"),
        ("#" * (FILE_BYTES_MAX + 1), "is larger than"),
    ],
)
def test_a_file_that_is_not_clear_is_refused_without_repeating_it(tmp_path: Path, text: str, message: str) -> None:
    tokens = TokenFile(tmp_path / "tokens.toml")
    tokens.write(text)
    with pytest.raises(InvalidArgumentsError, match=message) as refused:
        read_credentials(tokens.path)
    assert "cavemem_secret" not in refused.value.message
    assert HASH not in refused.value.message


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o700])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    tokens = TokenFile(tmp_path / "tokens.toml")
    tokens.path.chmod(mode)
    with pytest.raises(InvalidArgumentsError, match="chmod 600"):
        read_credentials(tokens.path)


def test_what_is_no_regular_file_of_ours_is_refused(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.toml")
    (tmp_path / "link").symlink_to(tokens.path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "link", tmp_path / "pipe", tmp_path, tmp_path / "missing"):
        with pytest.raises(InvalidArgumentsError):
            read_credentials(path)


def test_another_users_file_is_refused(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.toml")
    if os.geteuid():
        pytest.skip("only root can give a file away")
    os.chown(tokens.path, 12345, 12345)
    with pytest.raises(InvalidArgumentsError, match="another user"):
        read_credentials(tokens.path)


def test_a_server_does_not_start_with_a_file_that_is_refused(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.toml")
    tokens.path.chmod(0o644)
    ended = subprocess.run(
        command("mcp", "--transport", "streamable-http", "--port", "0", "--auth-tokens", str(tokens.path)),
        capture_output=True,
        check=False,
        timeout=20,
    )
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert b"chmod 600" in ended.stderr


@pytest.mark.parametrize(
    "authorization",
    [None, "Bearer", "Bearer x", "Basic YWxpY2U6", "alice", "Bearer {bob}x", "Bearer %ff", "Token {bob}"],
)
def test_without_a_secret_that_is_known_nobody_comes_in(
    shared: tuple[RemoteServer, dict[str, str]], authorization: str | None
) -> None:
    server, secrets = shared
    headers = {} if authorization is None else {"Authorization": authorization.format(**secrets)}
    for message in (ping(1), call("remember", {"text": FACT}), {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}):
        response = server.post(None, message, headers)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == CHALLENGE
        assert response.json() == {"error": "invalid_token", "error_description": "Authentication required"}
    assert not (server.home / "mem").exists()


def test_every_method_and_era_needs_a_secret(shared: tuple[RemoteServer, dict[str, str]]) -> None:
    server, _ = shared
    with server.client() as client:
        for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "1999-01-01"):
            for method in ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE"):
                response = client.request(method, "/mcp", headers={"MCP-Protocol-Version": version})
                assert response.status_code == 401, (version, method)


def test_an_expired_token_admits_nobody_and_a_later_one_does(tmp_path: Path, tokens: TokenFile) -> None:
    gone = tokens.add("gone", more="expires = 2020-01-01T00:00:00Z")
    here = tokens.add("here", more="expires = 2999-01-01T00:00:00+02:00")
    with remote_server(tmp_path / "home", "--auth-tokens", str(tokens.path)) as server:
        assert server.post(gone, ping(1)).status_code == 401
        assert server.post(here, ping(1)).status_code == 200


def test_a_hangup_reads_the_file_again(server: RemoteServer, tokens: TokenFile) -> None:
    alice, dora = tokens.secrets["alice"], tokens.add("dora")
    assert server.post(dora, ping(1)).status_code == 401
    tokens.remove("alice")
    server.reload()
    poll(lambda: server.post(dora, ping(1)).status_code == 200)
    assert server.post(alice, ping(1)).status_code == 401


def test_a_hangup_with_a_broken_file_changes_nothing_and_says_so(server: RemoteServer, tokens: TokenFile) -> None:
    tokens.write("broken = [")
    server.reload()
    server.wait_for("the tokens stay as they were")
    assert server.post(tokens.secrets["alice"], ping(1)).status_code == 200


def test_secrets_stay_out_of_logs_arguments_and_files(server: RemoteServer, tokens: TokenFile) -> None:
    guess = new_credential("guess")[0]
    server.tool(tokens.secrets["alice"], "remember", text=FACT)
    server.post(guess, ping(1))
    server.post(tokens.secrets["alice"], {"jsonrpc": "2.0", "id": 1, "method": "no/such"})
    pid = server.process.pid
    seen = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/comm").read_bytes()
    server.stop()
    seen += b"".join(path.read_bytes() for path in server.home.rglob("*") if path.is_file())
    for secret in (*tokens.secrets.values(), guess):
        assert secret.encode() not in seen
        assert bearer(secret)["Authorization"].encode() not in seen
