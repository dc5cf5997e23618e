"""Who calls over HTTP, what they may do and which store is theirs, by secrets of a token file. Opens no store."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl
from starlette.types import Scope

from cavemem_mcp.credentials import Credential, find, read_credentials
from cavemem_mcp.errors import CaveError, ForbiddenError

READ_SCOPE: Final = "cavemem:read"
WRITE_SCOPE: Final = "cavemem:write"
SCOPES: Final = [READ_SCOPE, WRITE_SCOPE]

logger = logging.getLogger(__name__)


class Principal(AccessToken):
    """An admitted caller. `client_id` is the name for the log, `store` the folder of its memories."""

    store: str


def refuse_readers() -> None:
    """Do nothing where whoever makes the request that is being served may change memories.

    Raises:
        ForbiddenError: They may only read.
    """
    principal = get_access_token()  # None where nobody needs to say who they are
    if principal is not None and WRITE_SCOPE not in principal.scopes:
        raise ForbiddenError("you may recall here but not change memories; ask for a token that may write")


def principal_of(scope: Scope) -> Principal | None:
    """Return who made the HTTP request of an ASGI scope; None before or without authentication."""
    user = scope.get("user")
    return cast("Principal", user.access_token) if isinstance(user, AuthenticatedUser) else None


class TokenFileVerifier(TokenVerifier):
    """Admits the secrets whose hashes are in a token file, which can be read again while serving."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._credentials: Sequence[Credential] = read_credentials(path)

    def reload(self) -> None:
        """Read the file again. What it said before stays in force if it cannot be read."""
        try:
            self._credentials = read_credentials(self._path)
        except CaveError as error:
            logger.error("the tokens stay as they were: %s", error.message)  # noqa: TRY400  # expected, no traceback
        else:
            logger.warning("the token file was read again: %d tokens", len(self._credentials))

    async def verify_token(self, token: str) -> Principal | None:
        """Return whose secret this is, or None."""
        found = find(self._credentials, token)
        if found is None or (found.expires is not None and found.expires.timestamp() <= time.time()):
            return None
        return Principal(
            token="", client_id=found.name, scopes=SCOPES if found.may_write else [READ_SCOPE], store=found.store
        )

    def settings(self) -> AuthSettings:
        """Return what the SDK's middleware needs. No metadata: nobody can ask for such a token online."""
        issuer = AnyHttpUrl("https://tokens.invalid")  # required, and not used without a resource
        return AuthSettings(issuer_url=issuer, resource_server_url=None, required_scopes=[READ_SCOPE])
