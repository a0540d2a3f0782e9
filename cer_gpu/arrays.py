"""Types of NumPy arrays, by what their elements are."""

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
