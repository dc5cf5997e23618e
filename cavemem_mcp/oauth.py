"""Who calls over HTTP, by access tokens that an OAuth 2.1 issuer signed for this server. Issues none itself."""

import hashlib
import json
import logging
import math
import ssl
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt
from mcp.server.auth.provider import TokenVerifier
from mcp.server.auth.settings import AuthSettings

from cavemem_mcp.auth import READ_SCOPE, SCOPES, Principal
from cavemem_mcp.errors import InvalidArgumentsError

ALGORITHMS: Final = ["RS256", "ES256", "EdDSA"]
"""Public-key signatures only: with a shared secret whoever can check a token could make one."""
LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")
CLOCK_SKEW_SECONDS: Final = 30
KEYS_KEPT_SECONDS: Final = 300
"""How long the issuer's keys are used before they are fetched again."""
KEYS_FETCH_SECONDS_MIN: Final = 30
"""Between two fetches, whatever keys are asked for: the rate is not the clients' to choose."""
KEYS_FETCH_TIMEOUT_SECONDS: Final = 5
"""From the first byte that is sent to the last that is received."""
KEYS_BYTES_MAX: Final = 256 * 1024

logger = logging.getLogger(__name__)


class _KeysByUrl:
    """An issuer's keys at a URL: kept for a while, and fetched at a rate that is not the clients' to choose.

    PyJWT's client would hold a worker thread for each token with an unknown key while the issuer is slow, which anybody
    can send, and would read as slowly and as much as the issuer likes.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._trust = ssl.create_default_context()
        self._keys: list[jwt.PyJWK] = []
        self._fetched_at = self._tried_at = -math.inf
        self._fetching = anyio.Lock()

    async def get(self, kid: str) -> list[jwt.PyJWK]:
        """Return the keys that are good now; if none has this id, they are fetched first where it is time for that."""
        if not self._has(kid):
            async with self._fetching:
                if not self._has(kid) and time.monotonic() - self._tried_at >= KEYS_FETCH_SECONDS_MIN:
                    self._tried_at = time.monotonic()
                    await self._fetch()
        return self._good()

    def _good(self) -> list[jwt.PyJWK]:
        return self._keys if time.monotonic() - self._fetched_at < KEYS_KEPT_SECONDS else []

    def _has(self, kid: str) -> bool:
        return any(key.key_id == kid for key in self._good())

    async def _fetch(self) -> None:
        try:
            with anyio.fail_after(KEYS_FETCH_TIMEOUT_SECONDS):
                self._keys = _parsed(await self._read())
        except (httpx2.HTTPError, TimeoutError, ValueError) as error:
            logger.warning("the keys of the OAuth issuer cannot be fetched: %s", type(error).__name__)
        else:
            self._fetched_at = time.monotonic()

    async def _read(self) -> bytes:
        body = bytearray()
        plain = {"Accept-Encoding": "identity"}  # a compressed answer could be small and still too large
        async with (
            httpx2.AsyncClient(verify=self._trust, headers=plain) as client,
            client.stream("GET", self._url) as response,
        ):
            response.raise_for_status()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > KEYS_BYTES_MAX:
                    raise ValueError("too large")
        return bytes(body)


class JwtVerifier(TokenVerifier):
    """Admits access tokens that an OAuth issuer signed for this server."""

    def __init__(self, *, issuer: str, audience: str, keys: str) -> None:
        """Read the keys where they are a file; a URL is fetched when the first token comes.

        Raises:
            InvalidArgumentsError: An address or the file cannot be used.
        """
        self._issuer = issuer
        self._audience = audience
        if not _is_url(audience):
            raise InvalidArgumentsError(
                "--oauth-audience: must be this server's public URL, the resource of its tokens"
            )
        if not _is_url(issuer):
            raise InvalidArgumentsError("--oauth-issuer: must be a URL, exactly as it stands in the tokens")
        self._keys_by_url: _KeysByUrl | None = None
        self._keys: list[jwt.PyJWK] = []
        if not _is_url(keys):
            self._keys = _read_keys(Path(keys))
        elif keys.startswith("https://") or urlsplit(keys).hostname in LOOPBACK_NAMES:
            self._keys_by_url = _KeysByUrl(keys)
        else:
            raise InvalidArgumentsError(
                "--oauth-jwks: must be https, or anyone on the way could send keys of their own"
            )

    async def verify_token(self, token: str) -> Principal | None:
        """Return who a token was issued to, or None if it does not admit anyone here."""
        try:
            kid = jwt.get_unverified_header(token).get("kid")
            claims = jwt.decode(
                token,
                await self._key(kid),
                algorithms=ALGORITHMS,
                issuer=self._issuer,
                audience=self._audience,
                leeway=CLOCK_SKEW_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"], "enforce_minimum_key_length": True},
            )
        except (jwt.PyJWTError, ValueError):
            return None
        subject: str = claims["sub"]
        if not subject:  # an issuer that names nobody would make everybody share one store
            return None
        store = store_of_subject(self._issuer, subject)
        return Principal(
            token="",
            client_id=store,
            subject=subject,
            scopes=_scopes(claims),
            claims={"iss": self._issuer},
            resource=self._audience,
            store=store,
        )

    def settings(self) -> AuthSettings:
        """Return what the SDK's middleware needs, and what its metadata for clients say."""
        return AuthSettings.model_validate(  # which leaves a URL without a path as it stands in the tokens
            {
                "issuer_url": self._issuer,
                "resource_server_url": self._audience,
                "required_scopes": [READ_SCOPE],
                "validate_token_resource": True,
            }
        )

    async def _key(self, kid: object) -> jwt.PyJWK:
        """Return the issuer's key of this id. One that is not known yet is looked up at the issuer."""
        keys = self._keys
        if self._keys_by_url is not None:
            keys = await self._keys_by_url.get(kid) if isinstance(kid, str) else []
        for key in keys:
            if key.public_key_use in ("sig", None) and (key.key_id == kid or (kid is None and len(keys) == 1)):
                return key
        raise jwt.InvalidKeyError("no such key")


def store_of_subject(issuer: str, subject: str) -> str:
    """Return the store of somebody whom an issuer knows: a folder's name that tells nothing about them."""
    return "jwt-" + hashlib.sha256(json.dumps([issuer, subject]).encode()).hexdigest()[:40]


def _is_url(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("https", "http") and bool(parts.hostname)


def _scopes(claims: dict[str, Any]) -> list[str]:
    """Return the scopes of a token: `scope` is the standard's claim, `scp` what some issuers write instead."""
    granted = claims.get("scope", claims.get("scp", ""))
    words = granted.split() if isinstance(granted, str) else granted
    return [scope for scope in SCOPES if isinstance(words, list) and scope in words]


def _read_keys(path: Path) -> list[jwt.PyJWK]:
    try:
        return _parsed(path.read_bytes())
    except OSError as error:
        raise InvalidArgumentsError(f"--oauth-jwks: {path} cannot be read: {error.strerror}") from error
    except ValueError:
        raise InvalidArgumentsError(f"--oauth-jwks: {path} is no JSON Web Key Set with public keys") from None


def _parsed(key_set: bytes) -> list[jwt.PyJWK]:
    """Return the keys of a JSON Web Key Set.

    Raises:
        ValueError: It is none, or holds no key of a kind that can be used here.
    """
    try:
        keys = jwt.PyJWKSet.from_json(key_set.decode()).keys
    except (jwt.PyJWTError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError("no key set") from error
    if not any(key.algorithm_name in ALGORITHMS for key in keys):
        raise ValueError("no usable key")
    return keys
