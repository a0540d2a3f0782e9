"""Resident events: columns in the memory of a GPU, which are read in place.

Such a column is an Arrow array over an address that the host cannot read: it can only be sliced and renamed.
Therefore users get no RecordBatch of these events, and all code that would read them on the host refuses them.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.backend import cupy_backend
from cer_gpu.ceql.paths import dotted
from cer_gpu.columnar.fields import array_of
from cer_gpu.errors import EventsError

_KINDS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)} | {"f4", "f8"}
_FORMATS = dict(zip("cCsSiIlLfg", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"], strict=True))
_CUDA = (2, 13)
"""kDLCUDA and kDLCUDAManaged of DLPack, which Arrow's ARROW_DEVICE_CUDA and ARROW_DEVICE_CUDA_MANAGED equal."""


@dataclass(frozen=True)
class DeviceArray:
    """A contiguous array of one dimension on the device.

    Attributes
    ----------
    address : int
    dtype : numpy.dtype
    length : int
    owner : object
        Object that keeps the memory alive.
    """

    address: int
    dtype: np.dtype[Any]
    length: int
    owner: Any


class _ArrowSchema(ctypes.Structure):
    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_char_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class _ArrowDeviceArray(ctypes.Structure):
    _fields_ = (
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
        ("device_id", ctypes.c_int64),
        ("device_type", ctypes.c_int32),
        ("sync_event", ctypes.c_void_p),
        ("reserved", ctypes.c_int64 * 3),
    )


def is_on_device(values: Any) -> bool:
    """Return True if an object has an interface of arrays on the device."""
    if isinstance(values, pa.Array):
        return False
    if hasattr(values, "__cuda_array_interface__") or hasattr(values, "__arrow_c_device_array__"):
        return True
    return hasattr(values, "__dlpack_device__") and values.__dlpack_device__()[0] in _CUDA


def device_array(name: str, values: Any) -> DeviceArray:
    """Return the memory of a column on the device.

    Raises
    ------
    EventsError
        When the values are not integers, float32 or float64, or there are NULLs or gaps.
    """
    if hasattr(values, "__cuda_array_interface__"):
        return _by_cuda_array_interface(name, values)
    if hasattr(values, "__arrow_c_device_array__"):
        return _by_arrow(name, values)
    return _by_cuda_array_interface(name, cupy_backend.from_dlpack(values))


def _by_cuda_array_interface(name: str, values: Any) -> DeviceArray:
    interface = values.__cuda_array_interface__
    dtype, shape, strides = np.dtype(interface["typestr"]), interface["shape"], interface.get("strides")
    if f"{dtype.kind}{dtype.itemsize}" not in _KINDS or not dtype.isnative:
        raise _wrong_type(name, str(dtype))
    if len(shape) != 1 or strides not in (None, (dtype.itemsize,)) or interface.get("mask") is not None:
        raise EventsError(
            f"column {name!r}: expected one dimension without gaps or a mask, got shape {shape}, strides {strides}"
        )
    return DeviceArray(interface["data"][0], dtype, shape[0], values)


def _by_arrow(name: str, values: Any) -> DeviceArray:
    capsules = values.__arrow_c_device_array__()  # they release the array when nothing refers to them
    schema = _ArrowSchema.from_address(_pointer(capsules[0], b"arrow_schema"))
    array = _ArrowDeviceArray.from_address(_pointer(capsules[1], b"arrow_device_array"))
    kind = (schema.format or b"").decode()
    if array.device_type not in _CUDA:
        raise EventsError(
            f"column {name!r}: expected memory of a CUDA device, got that of device type {array.device_type}"
        )
    if kind not in _FORMATS or schema.dictionary:
        raise _wrong_type(name, f"Arrow's format {kind!r}" + (" with a dictionary" if schema.dictionary else ""))
    if array.null_count and array.buffers[0]:
        raise EventsError(
            f"column {name!r}: expected no NULL on the device\nhint: fill them, or give an array of the host"
        )
    dtype = np.dtype(_FORMATS[kind])
    address = (array.buffers[1] or 0) + array.offset * dtype.itemsize
    return DeviceArray(address, dtype, array.length, capsules)


def _pointer(capsule: Any, name: bytes) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return int(get(capsule, name))


def _wrong_type(name: str, actual: str) -> EventsError:
    return EventsError(
        f"column {name!r}: expected integers, float32 or float64 on the device, got {actual}\n"
        "hint: convert it, such as by .astype('uint8') for booleans"
    )


_ends: dict[int, int] = {}  # end of the memory of columns in use, by its first address
_n_holders: dict[int, int] = {}  # number of columns, by the same address


class DeviceEvents:
    """Events with some columns in the memory of a GPU.

    They are evaluated with ``device="cuda"`` or "auto".  Predicates on one event read such columns, and so do join
    predicates over numbers (docs/guides/gpu.md); the time column, keys of PARTITION BY and the attributes in "events"
    must be on the host, and so must all columns of events that are sorted, merged or reordered (`lateness`).  The
    arrays must not change during the evaluation.

    Parameters
    ----------
    columns : dict from str to array
        For each column an array on the host (anything that `pyarrow.array` takes), or one on the device, contiguous, of
        one dimension and without NULL: integers, float32 or float64, as a CuPy array or any object with
        ``__cuda_array_interface__``, ``__dlpack__`` or ``__arrow_c_device_array__``.  A pair (codes on the device, list
        of strings) is a column of strings; a code outside the list is NULL.

    Raises
    ------
    EventsError
        When an array is of another kind, or lengths differ.

    Examples
    --------
    >>> import cupy, cer_gpu                                                           # doctest: +SKIP
    >>> x = cupy.random.random(1000)                                                   # doctest: +SKIP
    >>> types = (cupy.random.randint(0, 2, 1000, "int32"), ["A", "B"])                 # doctest: +SKIP
    >>> query = cer_gpu.compile("SELECT * FROM S WHERE A ; B FILTER A[x > 0.5]")       # doctest: +SKIP
    >>> query.evaluate(cer_gpu.DeviceEvents({"type": types, "x": x}), device="cuda")   # doctest: +SKIP
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        arrays = {name: _resident_column(name, values) for name, values in columns.items()}
        lengths = {name: len(array) for name, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise EventsError(f"expected columns of one length, got {lengths}")
        self._batch = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self._batch.schema

    def __len__(self) -> int:
        """Return the number of events."""
        return int(self._batch.num_rows)

    def batch(self) -> pa.RecordBatch:
        """Return the columns as a RecordBatch, for the engine alone: a read of its values on the host is a crash."""
        return self._batch


def some_are_resident() -> bool:
    """Return True if any column of any events is in the memory of a GPU."""
    return bool(_ends)


def is_resident(array: pa.Array) -> bool:
    """Return True if the values (or codes) of a column are in the memory of a GPU."""
    if not _ends:
        return False
    if pa.types.is_dictionary(array.type):
        array = array.indices
    addresses = [buffer.address for buffer in array.buffers()[1:2] if buffer is not None]  # of the values
    # a copy, made at once: garbage that is collected meanwhile may release columns
    return any(first <= address < end for address in addresses for first, end in _ends.copy().items())


def refuse_resident(batch: pa.RecordBatch, names: Collection[str], why: str) -> None:
    """Refuse events with a resident column that the host must read.

    Raises
    ------
    EventsError
    """
    for name in names:
        if _ends and is_resident(array_of(batch, name)):
            raise EventsError(
                f"column {dotted(name)!r} is in the memory of a GPU, and {why} reads it on the host\n"
                "hint: give it as an array of the host, such as that of cupy.asnumpy"
            )


def _resident_column(name: str, values: Any) -> pa.Array:
    if isinstance(values, Mapping):
        raise EventsError(
            f"column {name!r}: expected an array, got {type(values).__name__}\n"
            "hint: structs cannot lie on the device; give each field as a column of its own"
        )
    if isinstance(values, tuple) and len(values) == 2 and is_on_device(values[0]):
        codes = _array(name, values[0])
        return pa.DictionaryArray.from_arrays(codes, pa.array(values[1], pa.string()), safe=False)
    return _array(name, values) if is_on_device(values) else pa.array(values)


def _array(name: str, values: Any) -> pa.Array:
    source = device_array(name, values)
    address, size = source.address, source.dtype.itemsize
    data_type, n_bytes = pa.from_numpy_dtype(source.dtype), source.length * size
    if not n_bytes:
        return pa.array([], data_type)
    if address % size:
        raise EventsError(f"column {name!r}: expected an address that is a multiple of {size}, got {address}")
    cupy_backend.synchronize()  # the array may still be being filled
    keeper = _Keeper(source.owner)
    _ends[address] = max(_ends.get(address, 0), address + n_bytes)
    _n_holders[address] = _n_holders.get(address, 0) + 1
    weakref.finalize(keeper, _release, address)
    data = pa.foreign_buffer(address, n_bytes, keeper)
    return pa.Array.from_buffers(data_type, source.length, [None, data], null_count=0)


class _Keeper:
    """Owner of memory, alive for as long as Arrow arrays refer to it."""

    def __init__(self, values: Any) -> None:
        self.values = values


def _release(address: int) -> None:
    _n_holders[address] -= 1
    if not _n_holders[address]:
        del _n_holders[address], _ends[address]
