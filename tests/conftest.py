"""Fixtures that every test may use."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of public data; tests that need it are skipped by name where it is absent."""
    folder = Path(os.environ.get("FORESHOCK_SHARED", "../shared"))
    if not folder.is_dir():
        pytest.skip(f"public data not found at {folder} (set FORESHOCK_SHARED)")
    return folder
