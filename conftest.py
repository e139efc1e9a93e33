"""Puts the repository ahead of `tests/` on the import path: tests mirror the packages, so the folders share names."""
