"""Benchmarks: they print, and judge nothing. Each has a tiny run in the test suite."""
