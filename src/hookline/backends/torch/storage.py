"""Storage: tensors to and from safetensors files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from hookline.errors import RunError

COMPLEX = {torch.complex64: "complex64", torch.complex128: "complex128", torch.complex32: "complex32"}


def write_safetensors(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Writes tensors of any dtype; complex ones as pairs of real numbers, named in the metadata."""
    plain: dict[str, torch.Tensor] = {}
    for key, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
            raise RunError(
                f"a {tensor.layout} tensor can't be saved as safetensors; use reduce= to make it dense."
            )
        if tensor.dtype in COMPLEX:
            metadata = {**metadata, f"complex:{key}": COMPLEX[tensor.dtype]}
            tensor = torch.view_as_real(tensor.resolve_conj())
        plain[key] = tensor.detach().contiguous().clone() if _shares(tensor, plain) else tensor.contiguous()
    try:
        save_file(plain, path, metadata)
    except SafetensorError as error:
        raise OSError(str(error)) from error


def read_safetensors(path: Path, keys: list[str] | None = None) -> dict[str, Any]:
    """The tensors of a file by name, all or those asked for, and under "" its metadata."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors: dict[str, Any] = {"": metadata}
            for key in file.keys() if keys is None else keys:
                tensor = file.get_tensor(key)
                tensors[key] = torch.view_as_complex(tensor) if f"complex:{key}" in metadata else tensor
            return tensors
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _shares(tensor: torch.Tensor, others: dict[str, torch.Tensor]) -> bool:
    # A tensor that stands at two places of a structure is stored once; safetensors wants its own copy.
    pointer = tensor.untyped_storage().data_ptr()
    return any(other.untyped_storage().data_ptr() == pointer for other in others.values())
