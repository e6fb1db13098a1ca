"""Language models: text that continues a prompt.

    from ferrane import llm

    model = llm.Model("runs/default")        # a run of `ferrane train`, a Hugging Face folder, GGUF, llama2.c
    for piece in model.stream("One day"):
        print(piece, end="", flush=True)
"""

from __future__ import annotations

import os
from typing import Optional, Union

from . import _native

__all__ = ["Model"]


class Model:
    """A language model with its tokenizer."""

    def __init__(
        self,
        path: Union[str, os.PathLike[str]],
        *,
        tokenizer: Optional[Union[str, os.PathLike[str]]] = None,
        device: str = "emulator",
    ) -> None:
        """Opens a folder of a run or of Hugging Face, a GGUF file, or a llama2.c checkpoint with its `tokenizer`."""
        self._native = _native.LanguageModel(path, tokenizer, device)

    def stream(
        self,
        prompt: str,
        *,
        tokens: int = 256,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: Optional[int] = None,
        seed: Optional[int] = None,
    ) -> _native.Pieces:
        """Continues the prompt by at most so many tokens, a piece of text after the other.

        A `temperature` of 0 always takes the most probable token. `top_p` and `top_k` draw among the most probable
        ones. The same `seed` gives the same text. ``close()`` of the iterator ends the generation early.
        """
        return self._native.stream(prompt, tokens, temperature, top_p, top_k, seed)

    def generate(
        self,
        prompt: str,
        *,
        tokens: int = 256,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: Optional[int] = None,
        seed: Optional[int] = None,
    ) -> str:
        """What follows the prompt, without it; see `stream`."""
        pieces = self.stream(
            prompt, tokens=tokens, temperature=temperature, top_p=top_p, top_k=top_k, seed=seed
        )
        return "".join(pieces)
