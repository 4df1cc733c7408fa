"""torch: a file of parameters with the import path of the class, or an exported program."""

from __future__ import annotations

import copy
import importlib.util
import sys
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fairij.errors import InvalidInputError
from fairij.storage.model_files.columns import ModelFile, Opening, file_of
from fairij.storage.reading import check_archive, reading, require


def state_file(path: Path, opening: Opening) -> ModelFile:
    """A module of ``opening.model_class`` with the parameters of a safetensors or .pt file."""
    with reading(path, "a file of torch parameters"):
        state = _state(path, opening)
    if isinstance(state, nn.Module):  # a whole pickled module, which the user trusts
        return file_of("torch module (pickle)", state, path.suffix, torch.save)
    if opening.model_class is None:
        raise InvalidInputError(
            f"{path} holds parameters only: name their class, as in --model-class "
            "package.module:Net (or net.py:Net), and the arguments of its constructor, as in "
            """--model-args '{"inputs": 4}'."""
        )
    module = _construct(opening)
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        text = "; ".join(line.strip() for line in str(error).splitlines()[1:3])
        raise InvalidInputError(
            f"The parameters in {path} do not fit {opening.model_class} made with "
            f"{dict(opening.model_args)}: {text}"
        ) from None
    return file_of("torch parameters", module.eval(), path.suffix, _save_state)


def exported_program(path: Path, opening: Opening) -> ModelFile:
    """A program of `torch.export`. Its reader may run code from the file."""
    opening.require_trust(path, "an exported torch program")
    with reading(path, "an exported torch program"):
        module = Program(torch.export.load(path))
    return file_of("torch exported program", module, path.suffix, _save_program)


class Program(nn.Module):
    """An exported program as a module that can be copied. It is always in evaluation mode."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        super().__init__()
        self.program = program
        self.graph = program.module()

    def forward(self, *rows: Tensor) -> Any:
        return self.graph(*rows)

    def train(self, mode: bool = True) -> Program:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        copied = Program(self.program)
        names = [name for name, _ in copied.graph.named_parameters()]
        for name, mine in zip(names, self.graph.parameters(), strict=True):
            owner, _, leaf = name.rpartition(".")
            setattr(copied.graph.get_submodule(owner), leaf, copy.deepcopy(mine, memo))
        return copied


def _state(path: Path, opening: Opening) -> Any:
    if path.suffix == ".safetensors":
        return _real(path, load_file(path))
    is_archive = zipfile.is_zipfile(path)  # older versions of torch wrote other files
    if is_archive:
        check_archive(path)
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # torch ignores the checksums
        require(damaged is None, f"its part {damaged!r} has changed since it was saved")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        if "weights_only" not in str(error):
            raise
        require(is_archive, "it is not an archive as torch.save writes it")
        opening.require_trust(path, "a torch file with more in it than tensors")
        state = torch.load(path, map_location="cpu", weights_only=False)
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if isinstance(state, nn.Module):
        return state
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise InvalidInputError(
            f"{path} must hold a table of tensors, as `torch.save(module.state_dict(), ...)` "
            f"writes; it holds {type(state).__name__!r}."
        )
    return _real(path, state)


def _real(path: Path, state: dict[Any, Tensor]) -> dict[Any, Tensor]:
    """Raise unless names are text and values real: torch would drop imaginary parts in silence."""
    for name, value in state.items():
        if not isinstance(name, str):
            raise InvalidInputError(
                f"{path} must hold tensors by the names of parameters, as `module.state_dict()` "
                f"has them; got the name {name!r}, of type {type(name).__name__!r}."
            )
        if value.is_complex():
            raise InvalidInputError(
                f"{path} must hold real parameters, but {name!r} is {value.dtype}: such models "
                "cannot be edited."
            )
    return state


def _construct(opening: Opening) -> nn.Module:
    made_by = opening.model_class or ""
    place, _, name = made_by.rpartition(":")
    if not place:
        raise InvalidInputError(
            f"--model-class must be module:Class or file.py:Class, got {made_by!r}."
        )
    load = _from_file if place.endswith(".py") else _from_name
    try:
        kind = getattr(load(place), name)
    except (ImportError, AttributeError, OSError, SyntaxError) as error:
        raise InvalidInputError(f"--model-class {made_by} cannot be imported: {error}.") from None
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):  # nothing else is called
        raise InvalidInputError(
            f"--model-class {made_by} must name a class of torch.nn.Module, but it is "
            f"{'the class' if isinstance(kind, type) else 'of type'} "
            f"{(kind if isinstance(kind, type) else type(kind)).__name__!r}: name such a class, "
            "or write one in a file (net.py:Net) that makes the model."
        )
    try:
        return kind(**opening.model_args)
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)  # the first line
        raise InvalidInputError(
            f"--model-class {made_by} cannot be made with {dict(opening.model_args)}: {said}. "
            "Give the constructor's arguments by --model-args."
        ) from None


def _from_name(place: str) -> Any:
    """Import a module: an installed one, or else one in the working folder."""
    here = str(Path.cwd())
    added = [] if here in sys.path else [here]
    sys.path += added
    try:
        return import_module(place)
    finally:
        for folder in added:
            sys.path.remove(folder)


def _from_file(place: str) -> Any:
    """Import a Python file under its own name, so that pickling and copying find it."""
    file = Path(place)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ImportError(f"there is no file {file}")
    source = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, source)
    spec.loader.exec_module(source)
    return source


def _save_state(module: nn.Module, target: Path) -> None:
    state = {name: value.detach().contiguous() for name, value in module.state_dict().items()}
    if target.suffix == ".safetensors":
        save_file(state, target)
    else:
        torch.save(state, target)


def _save_program(module: Program, target: Path) -> None:
    """Save the program with the parameters of the module; the program itself is not changed."""
    program = module.program
    state, values = program.state_dict, dict(module.graph.named_parameters())
    kept = {name: state[name] for name in values}
    try:
        state.update({name: nn.Parameter(p.detach().clone()) for name, p in values.items()})
        torch.export.save(program, target)
    finally:
        state.update(kept)
