"""How the engine's functions are compiled."""

from numba import njit

compiled = njit(cache=True, error_model="numpy", nogil=True)

# For what only compiled functions call: without the wrappers that Python would need, compilation takes half the time.
inner = njit(cache=True, error_model="numpy", nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
