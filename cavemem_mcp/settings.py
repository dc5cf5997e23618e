"""How to serve over HTTP: every setting's flag, environment variable, default and check. Itself reads nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, TypeVar

from cavemem_mcp.errors import InvalidArgumentsError
from cavemem_mcp.model import checked_integer

T = TypeVar("T")

PORT_MAX: Final = 65535
LEVELS: Final = ("info", "warning")


def _setting(default: T, help: str, *, minimum: int = 1) -> T:
    return field(default=default, metadata={"help": help, "minimum": minimum})


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """What can be set for serving over HTTP. Texts that are empty are not set; those named allowed_… are lists."""

    host: str = _setting("127.0.0.1", "address to listen on")
    port: int = _setting(8765, "port to listen on; 0 takes a free one", minimum=0)
    auth_tokens: str = _setting("", "token file: who may come in; SIGHUP reads it again")
    oauth_issuer: str = _setting("", "OAuth 2.1: URL of the issuer, exactly as in its tokens")
    oauth_audience: str = _setting("", "OAuth 2.1: public URL of this server, the tokens' audience")
    oauth_jwks: str = _setting("", "OAuth 2.1: file or URL with the issuer's public keys")
    allowed_host: str = _setting("", "names, separated by commas, under which clients reach the server")
    allowed_origin: str = _setting("", "origins, separated by commas, whose web pages may call")
    tls_cert: str = _setting("", "file with the certificate chain, to serve https")
    tls_key: str = _setting("", "file with the certificate's private key")
    forwarded_allow_ips: str = _setting("", "addresses of proxies whose X-Forwarded-… headers count")
    max_body_bytes: int = _setting(2 * 1024 * 1024, "largest request")
    max_connections: int = _setting(512, "connections at a time")
    max_requests: int = _setting(128, "requests being answered at a time, half of them of one principal")
    requests_per_second: int = _setting(50, "requests a second of each principal, on average")
    request_burst: int = _setting(200, "requests that a principal may send at once")
    header_timeout: int = _setting(10, "seconds for the head of a request to arrive")
    body_timeout: int = _setting(30, "seconds for its body to arrive, and for an answer to be read")
    idle_timeout: int = _setting(65, "seconds that a connection may wait for its next request")
    max_open_stores: int = _setting(64, "stores open at a time")
    store_idle_timeout: int = _setting(300, "seconds after which a store that nobody uses is closed")
    max_store_bytes: int = _setting(1024 * 1024 * 1024, "bytes that the memories of one store may take")
    log_level: str = _setting("info", "info: a line for each request; warning: none")

    @property
    def has_authentication(self) -> bool:
        """Return whether callers must say who they are."""
        return bool(self.auth_tokens or self.oauth_issuer)


FLAGS: Final = {f"--{setting.name.replace('_', '-')}": setting for setting in fields(HttpSettings)}
"""Each flag with the field that it sets."""


def variable(flag: str) -> str:
    """Return the environment variable that sets what a flag sets."""
    return f"CAVEMAN_{flag.removeprefix('--').replace('-', '_').upper()}"


def http_settings(options: Mapping[str, str], environment: Mapping[str, str]) -> HttpSettings:
    """Return the settings: flags first, then environment variables that are not empty, then defaults.

    Raises:
        InvalidArgumentsError: One is senseless, or some do not fit together.
    """
    values: dict[str, str | int] = {}
    for flag, setting in FLAGS.items():
        where = flag if flag in options else variable(flag)
        given = options.get(flag) or environment.get(variable(flag))
        if not given:
            continue
        if isinstance(setting.default, int):
            number = (
                checked_integer(where, given, maximum=PORT_MAX) if flag == "--port" else checked_integer(where, given)
            )
            if number < setting.metadata["minimum"]:
                raise InvalidArgumentsError(f"{where}: must be at least {setting.metadata['minimum']}")
            values[setting.name] = number
        else:
            values[setting.name] = given
    settings = HttpSettings(**values)  # type: ignore[arg-type]  # each value has its field's type, checked above
    _check(settings)
    return settings


def _check(settings: HttpSettings) -> None:
    oauth = (settings.oauth_issuer, settings.oauth_audience, settings.oauth_jwks)
    if any(oauth) and not all(oauth):
        raise InvalidArgumentsError("--oauth-issuer, --oauth-audience and --oauth-jwks: set all three, or none")
    if settings.auth_tokens and settings.oauth_issuer:
        raise InvalidArgumentsError("--auth-tokens and --oauth-issuer: choose one way to know who calls")
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise InvalidArgumentsError("--tls-cert and --tls-key: set both, or none")
    if settings.log_level not in LEVELS:
        raise InvalidArgumentsError("--log-level: is info or warning")


def help_lines() -> str:
    """Return what the command line's help says of each flag."""
    return "\n".join(
        f"  {flag:<24} {setting.metadata['help']}" + (f" ({setting.default})" if setting.default else "")
        for flag, setting in FLAGS.items()
    )
