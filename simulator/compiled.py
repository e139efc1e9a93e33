"""How the engine's functions are compiled, and where the result is kept."""

import os
from hashlib import sha256
from pathlib import Path

import numba


def _cache_folder() -> Path:
    """Return a folder of this very code: numba itself looks only at the file of the function that is called.

    It lies in NUMBA_CACHE_DIR, or beside the code, or, where that cannot be written, in the user's cache.
    """
    here = Path(__file__).parent
    digest = sha256(b"".join(path.read_bytes() for path in sorted(here.glob("*.py")))).hexdigest()[:16]
    root = Path(os.environ.get("NUMBA_CACHE_DIR") or here / "__pycache__")
    if not os.access(root if root.exists() else root.parent, os.W_OK):
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foreshock"
    return root / f"engine-{digest}"


numba.config.CACHE_DIR = str(_cache_folder())

compiled = numba.njit(cache=True, error_model="numpy", nogil=True)

# For what only compiled functions call: without the wrappers that Python would need, compilation takes half the time.
inner = numba.njit(cache=True, error_model="numpy", nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
