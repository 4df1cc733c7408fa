"""Save a training after every epoch, and continue it later with the same result."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fairij.data.hashing import tensors_fingerprint
from fairij.errors import CheckpointError
from fairij.language.training_inputs import TrainingPart
from fairij.models.torch.training import TrainingState, changing, put
from fairij.storage.checksummed import UNREADABLE, read_sealed, write_sealed

FORMAT = "fairij.training/1"
MAY_DIFFER = "epochs"  # a finished training can be continued with more epochs


def training_facts(
    model: nn.Module,
    recipe: Any,
    seed: int,
    penalty: Any,
    part: TrainingPart,
    part_val: TrainingPart,
) -> dict[str, Any]:
    """All that a training depends on, with models and data as hashes."""
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    facts = {**asdict(recipe), "seed": seed, "penalty": _described(penalty)}
    facts["model"] = tensors_fingerprint(model.state_dict().items(), about=_described(model))[:32]
    facts["trained parameters"] = tensors_fingerprint([], about=repr(trained))[:32]
    for prefix, given in (("", part), ("validation ", part_val)):
        data: dict[str, Any] = {"rows": given.rows, "labels": given.y}
        if given.groups is not None:
            data["groups"] = torch.as_tensor(given.groups)
        for name, values in data.items():
            tensors = values if isinstance(values, dict) else {"": values}
            facts[f"{prefix}{name}"] = tensors_fingerprint(tensors.items())[:32]
    return facts


def _described(thing: Any) -> str:
    """The representation of an object without memory addresses, which change."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(thing))


@dataclass(frozen=True)
class TrainingCheckpoint:
    """A file that holds a training: what it depends on, and how far it has come."""

    file: Path
    facts: Mapping[str, Any]
    module: nn.Module
    optimiser: torch.optim.Optimizer
    draws: torch.Generator

    def save(self, state: TrainingState) -> None:
        """Replace the file by the present state."""
        tensors = {f"parameters {n}": t for n, t in changing(self.module).items()}
        tensors |= {f"best {n}": value for n, value in state.best_state.items()}
        for place, values in self.optimiser.state_dict()["state"].items():
            of_place = {n: v for n, v in values.items() if isinstance(v, Tensor)}
            tensors |= {f"optimiser {place} {n}": v for n, v in of_place.items()}
        tensors["draws"] = self.draws.get_state()
        numbers = {name: value for name, value in vars(state).items() if name != "best_state"}
        header = {"format": FORMAT, "facts": _json(self.facts), "now": _json(numbers)}
        copies = {n: value.detach().cpu().clone().contiguous() for n, value in tensors.items()}
        try:
            write_sealed(self.file, copies, header)
        except OSError as error:
            raise CheckpointError(
                f"`checkpoint` {self.file} must be writable: {error.strerror or error}. The file "
                "written before is intact: free some space or give another file, and run again."
            ) from error

    def resume(self) -> TrainingState:
        """The state in the file, put into module, optimiser and draws; new without a file."""
        if not self.file.exists():
            return TrainingState()
        try:
            header, tensors = read_sealed(self.file, FORMAT)
            found, numbers = json.loads(header["facts"]), json.loads(header["now"])
            names = sorted(found.keys() | self.facts.keys())
            other = [n for n in names if found.get(n) != self.facts.get(n) and n != MAY_DIFFER]
            if other:
                raise CheckpointError(
                    f"`checkpoint` {self.file} must come from the same training; it differs in "
                    f"{', '.join(other)}. Give another file, or remove this one."
                )
            state = TrainingState(**numbers, best_state=_under("best ", tensors))
            parameters = _under("parameters ", tensors)
            for name, tensor in changing(self.module).items():
                for kept in (parameters, state.best_state or parameters):
                    if kept[name].shape != tensor.shape:
                        raise ValueError(f"its {name!r} has another shape")
            of_optimiser: dict[int, dict[str, Tensor]] = {}
            for key, value in _under("optimiser ", tensors).items():
                place, _, name = key.partition(" ")
                of_optimiser.setdefault(int(place), {})[name] = value
            self.draws.set_state(tensors["draws"])
            self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": of_optimiser})
        except CheckpointError:
            raise
        except (*UNREADABLE, RuntimeError) as error:
            raise CheckpointError(
                f"`checkpoint` {self.file} must be a whole file as this training writes it, but "
                f"it cannot be read: {error}. Remove it to start over, or give another file."
            ) from None
        put(parameters, changing(self.module))
        return state


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, default=lambda value: value.item())  # numpy's numbers as Python's


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names have this prefix, without the prefix."""
    return {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)}
