"""Functions of generated code besides Python's own operators: division as Arrow has it, and a prefetch."""

from __future__ import annotations

import numpy as np

from cer_gpu.backend.jit import helper

try:
    from llvmlite import ir
    from numba.core import cgutils
    from numba.core.types import void
    from numba.extending import intrinsic
    from numba.np.arrayobj import make_array
except ImportError:  # undocumented parts of Numba: without them code is slower, with the same results

    @helper
    def prefetch(array, at):
        """Do nothing."""

else:

    @intrinsic
    def prefetch(typing_context, array, at):
        """Ask for the cache line of an element, which may lie beyond the array's end, and go on without it.

        In a loop with some work for each row, the processor has only few rows in flight and would wait for memory at
        each new line; on virtual machines we measured, loops take up to a third of the time with this.
        """

        def codegen(context, builder, signature, arguments):
            data = make_array(signature.args[0])(context, builder, arguments[0]).data
            address = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
            number = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            builder.call(function, [address, number(0), number(3), number(1)])  # to read, to all caches, data
            return context.get_dummy_value()

        return void(array, at), codegen


@helper
def fmod(x, y):
    """Return the remainder of floats with the sign of `x`."""
    return np.fmod(x, y)


@helper
def quotient(x, y):
    """Return int64 ``x / y``, truncated toward zero; the smallest by -1 is 0 as in Arrow; any value if `y` is 0."""
    small = (y == 0) | (y == -1)
    divisor = np.int64(1) if small else y
    cut = x // divisor + np.int64((x % divisor != 0) & ((x < 0) != (divisor < 0)))
    negated = np.int64(np.uint64(0) - np.uint64(x))  # the smallest negated is itself
    return (np.int64(0) if negated == x else negated) if small else cut


@helper
def remainder(x, y):
    """Return int64 ``x % y`` with the sign of `x`; any value if `y` is 0."""
    divisor = np.int64(1) if (y == 0) | (y == -1) else y
    rest = x % divisor
    return rest - divisor if (rest != 0) & ((x < 0) != (divisor < 0)) else rest
