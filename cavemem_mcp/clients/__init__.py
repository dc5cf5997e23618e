"""Thin clients for programs: they run the `cavemem` command and hand on what it answers. Each file works alone."""
