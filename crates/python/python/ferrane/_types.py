"""Types of annotations, which load nothing before something evaluates them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["NDArray"]

if TYPE_CHECKING:
    from numpy.typing import NDArray
else:

    class NDArray:
        """numpy's type of arrays, which `typing.get_type_hints` gets without a module that imports numpy first."""

        def __class_getitem__(cls, element: Any) -> Any:
            from numpy.typing import NDArray as Array

            return Array[element]
