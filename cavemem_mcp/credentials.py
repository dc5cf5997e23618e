"""The token file: who may come in over HTTP, by the hashes of their secrets. Owns its format, knows no protocol."""

import hashlib
import hmac
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, cast

from cavemem_mcp.errors import InvalidArgumentsError

SECRET_PREFIX: Final = "cavemem_"  # noqa: S105  # the part that all secrets share
"""Makes a secret recognisable to the scanners that look for leaked ones."""
SECRET_BYTES: Final = 32
FILE_BYTES_MAX: Final = 4 * 1024 * 1024
ACCESSES: Final = ("read-only", "read-write")
KEYS: Final = {"name", "sha256", "store", "access", "expires"}

_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class Credential:
    """One entry of the token file.

    Attributes:
        name: Who it is, for the log.
        sha256: Of the secret, in hex.
        store: The folder under `stores`; entries that name the same share it.
        may_write: False for one that may only read.
        expires: When it ends, with its time zone; None for never.
    """

    name: str
    sha256: str
    store: str
    may_write: bool
    expires: datetime | None = None

    def as_toml(self) -> str:
        """Return the entry as it stands in the file."""
        access = ACCESSES[self.may_write]
        return (
            f'[[token]]\nname = "{self.name}"\nsha256 = "{self.sha256}"\nstore = "{self.store}"\naccess = "{access}"\n'
        )


def checked_slug(what: str, value: object) -> str:
    """Return a name that is safe as a folder's, in a log and in TOML.

    Raises:
        InvalidArgumentsError: It is none.
    """
    if not isinstance(value, str) or not _SLUG.fullmatch(value):
        raise InvalidArgumentsError(
            f"{what}: must be 1 to 64 lower-case letters, digits, - and _, and begin with a letter or digit"
        )
    return value


def new_credential(name: str, *, store: str | None = None, may_write: bool = True) -> tuple[str, Credential]:
    """Return a new secret, which is kept nowhere, and the entry that admits it."""
    name = checked_slug("name", name)
    secret = SECRET_PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    store = checked_slug("--store", name if store is None else store)
    return secret, Credential(name=name, sha256=_hash(secret), store=store, may_write=may_write)


def find(credentials: Sequence[Credential], secret: str) -> Credential | None:
    """Return whose secret this is, in a time that tells nothing about the entries."""
    hashed = _hash(secret)
    found = None
    for credential in credentials:
        if hmac.compare_digest(credential.sha256, hashed):
            found = credential
    return found


def read_credentials(path: Path) -> list[Credential]:
    """Read the token file, which must be a regular file of ours that nobody else may read.

    Raises:
        InvalidArgumentsError: It is not, or what it says is not clear. The message repeats nothing of it.
    """
    try:
        text = _read_private(path).decode()
        table: Mapping[str, object] = tomllib.loads(text)
    except OSError as error:
        raise InvalidArgumentsError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidArgumentsError(f"{path}: is not valid TOML; `cavemem token new` prints an entry") from None
    entries = table.get("token", [])
    if set(table) - {"token"} or not isinstance(entries, list):
        raise InvalidArgumentsError(f"{path}: may hold [[token]] entries only; `cavemem token new` prints one")
    credentials = [
        _credential(f"{path}: entry {number}", entry)
        for number, entry in enumerate(cast("list[object]", entries), start=1)
    ]
    for what, values in (
        ("name", [credential.name for credential in credentials]),
        ("sha256", [credential.sha256 for credential in credentials]),
    ):
        if len(set(values)) < len(values):
            raise InvalidArgumentsError(f"{path}: two entries have the same {what}; make each its own")
    return credentials


def _credential(where: str, entry: object) -> Credential:
    if not isinstance(entry, dict):
        raise InvalidArgumentsError(f"{where} is not a table")
    values = cast("dict[str, object]", entry)
    if not KEYS - {"expires"} <= set(values) <= KEYS:
        raise InvalidArgumentsError(f"{where}: needs name, sha256, store and access, and may have expires; no more")
    sha256, expires = values["sha256"], values.get("expires")
    if not isinstance(sha256, str) or not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise InvalidArgumentsError(f"{where}: sha256 must be 64 lower-case hex digits, the hash of the secret")
    if values["access"] not in ACCESSES:
        raise InvalidArgumentsError(f'{where}: access must be "read-only" or "read-write"')
    if expires is not None and (not isinstance(expires, datetime) or expires.tzinfo is None):
        raise InvalidArgumentsError(f"{where}: expires must be a time with its zone, such as 2030-01-31T00:00:00Z")
    return Credential(
        name=checked_slug(f"{where}: name", values["name"]),
        sha256=sha256,
        store=checked_slug(f"{where}: store", values["store"]),
        may_write=values["access"] == "read-write",
        expires=expires,
    )


def _read_private(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not hang us
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidArgumentsError(f"{path}: is not a regular file")
        if status.st_uid != os.geteuid():
            raise InvalidArgumentsError(f"{path}: belongs to another user; make it yours")
        if stat.S_IMODE(status.st_mode) & ~0o600:
            raise InvalidArgumentsError(f"{path}: others may read it; run: chmod 600 {path}")
        if status.st_size > FILE_BYTES_MAX:
            raise InvalidArgumentsError(f"{path}: is larger than {FILE_BYTES_MAX} bytes")
        return file.read()


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
