"""Plugin of pytest: CuPy asks the driver for each piece of memory, so that compute-sanitizer knows where it ends."""


def pytest_configure(config):
    import cupy

    cupy.cuda.set_allocator(None)
    cupy.cuda.set_pinned_memory_allocator(None)
