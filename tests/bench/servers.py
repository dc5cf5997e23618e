"""Servers to compare with: `python -m tests.bench.servers bare|stdio|http`.

`bare` is the SDK's server with one tool that does nothing. The other two are the product's server and transports on a
memory that does nothing: what a call costs before anything is recalled.
"""

import sys
import tempfile
from pathlib import Path

from mcp.server import MCPServer


def bare() -> None:
    """Serve one tool that does nothing, over stdio."""
    server = MCPServer("bare")

    @server.tool()
    def no_op() -> str:
        """Do nothing."""
        return ""

    server.run()


def without_memory(kind: str) -> int:
    """Serve the product's tools over a memory that finds nothing."""
    from cavemem_mcp import Cavemem, Recall, http, transport
    from cavemem_mcp.settings import http_settings

    class Nothing(Cavemem):
        def __init__(self) -> None:
            pass

        def recall(self, query: str, *, limit: int = 0, token_budget: int | None = None) -> Recall:
            return Recall(hits=(), omitted=0, more=False)

        def catch_up(self, *, waits: bool = True) -> None:
            pass

        def close(self) -> None:
            pass

    if kind == "stdio":
        return transport.serve_stdio(Nothing)
    quiet = http_settings({"--port": "0", "--log-level": "warning"}, {})
    with tempfile.TemporaryDirectory() as home:
        return http.serve_http(Path(home), lambda folder: Nothing(), quiet)


if __name__ == "__main__":
    (mode,) = sys.argv[1:]
    sys.exit(bare() if mode == "bare" else without_memory(mode))
