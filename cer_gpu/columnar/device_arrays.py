"""Arrays of other libraries in the memory of a GPU: their addresses, types and lengths.

The Arrow C device interface is read with ctypes, as pyarrow's wheels are built without GPU support.  Its structures
follow the specification field by field.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.backend import cupy_backend
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
    found = values.__cuda_array_interface__
    dtype, shape, strides = np.dtype(found["typestr"]), found["shape"], found.get("strides")
    if f"{dtype.kind}{dtype.itemsize}" not in _KINDS or not dtype.isnative:
        raise _wrong_type(name, str(dtype))
    if len(shape) != 1 or strides not in (None, (dtype.itemsize,)) or found.get("mask") is not None:
        raise EventsError(
            f"column {name!r}: expected one dimension without gaps or a mask, got shape {shape}, strides {strides}"
        )
    return DeviceArray(found["data"][0], dtype, shape[0], values)


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


def _wrong_type(name: str, found: str) -> EventsError:
    return EventsError(
        f"column {name!r}: expected integers, float32 or float64 on the device, got {found}\n"
        "hint: convert it, such as by .astype('uint8') for booleans"
    )
