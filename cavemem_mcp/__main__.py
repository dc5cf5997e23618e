"""Lets `python -m cavemem_mcp` stand for `cavemem`."""

import sys

from cavemem_mcp.cli import main

sys.exit(main())
