"""Conjugate gradients that share every direction among all right-hand sides.

A direction ``p`` that is conjugate to all earlier ones (``p^T A q = 0``) lowers the error of every
right-hand side without another product. So directions are kept, and the next right-hand side starts
from what they already give. The right-hand sides of Fair-IJ are nested sums of gradients: forty
edits cost about as many products as four unrelated solves.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fairij.data.checks import number_between, one_of, whole_number
from fairij.data.rows import processes
from fairij.errors import NegativeCurvatureError, NotConvergedError
from fairij.method.curvature import Curvature
from fairij.solvers.base import Solution, SolverDefaults, check_damping, columns
from fairij.solvers.exact import not_positive_definite
from fairij.solvers.guides import RowSpaceInverse, sampled
from fairij.solvers.recycled import Recycled

SMALLER = 8  # a sample is drawn if there are at least so many times as many rows
GUIDED, GUIDE_STEPS = 0.1, 50  # tolerance and steps of a loose solve on the sample
WIDE = 32  # parameters per sampled row from which the sample is inverted among its rows
DISTRUST = 0.2  # ridge of the sample; without it single rows dominate
NOTHING_NEW = 1e-4  # the part of a direction that earlier ones do not span, at least


@dataclass(frozen=True)
class ConjugateGradient(SolverDefaults):
    """``(H + damping I) x = b`` by products with H alone. Time N D per step.

    Parameters
    ----------
    tolerance : float, default=3e-3
        Stop when ``|b - A x| <= tolerance |b|`` for every right-hand side.
    max_steps : int, default=1000
        Products allowed in one call of ``solve``.
    memory_limit : int, default=2**29
        Bytes of stored directions; the oldest are dropped first. A sample takes half as much.
    on_failure : {"raise", "return"}, default="raise"
        What to do after ``max_steps``: raise, or return what was reached.
    sample_rows : int, default=0
        Use a sample of about so many rows as a preconditioner. Helps when CG needs many steps
        (little damping, small tolerance). Not used for small training sets (less than 8 times as
        many rows), on several processes, or for the full Hessian. In float32 use it for
        tolerances down to 1e-4.
    """

    tolerance: float = 3e-3
    max_steps: int = 1000
    memory_limit: int = 2**29
    on_failure: str = "raise"
    sample_rows: int = 0
    name = "cg"

    def __post_init__(self) -> None:
        number_between("tolerance", self.tolerance, 0, 1)
        whole_number("max_steps", self.max_steps, 1)
        whole_number("sample_rows", self.sample_rows, 0)
        one_of("on_failure", self.on_failure, ("raise", "return"))

    def prepare(self, curvature: Curvature, damping: float) -> ConjugateInverse:
        damping = check_damping(damping)
        return ConjugateInverse(self, curvature, damping, guide=self._guide(curvature, damping))

    def stopped_after(self, steps: int) -> ConjugateGradient:
        return replace(self.unshared, max_steps=steps, on_failure="return")

    def _guide(self, curvature: Curvature, damping: float) -> Guide | None:
        """The inverse of a sample's curvature."""
        rows = len(curvature.objective.y)
        if not 0 < SMALLER * self.sample_rows <= rows or processes() > 1:
            return None
        sample = sampled(curvature, self.sample_rows)
        if sample is None:
            return None
        if len(sample.objective.theta) >= WIDE * len(sample.objective.y):
            exact = RowSpaceInverse.of(
                sample, damping, memory_limit=self.memory_limit // 2, distrust=DISTRUST
            )
            if exact is not None:
                return exact
        loose = ConjugateGradient(
            tolerance=GUIDED,
            max_steps=GUIDE_STEPS,
            memory_limit=self.memory_limit // 2,
            on_failure="return",
        )
        return ConjugateInverse(loose, sample, damping)


class Directions:
    """Stored directions ``P`` with ``P A P^T = I``, ``A = H + damping I``, and their ``A P``."""

    def __init__(self, like: Tensor, memory_limit: int) -> None:
        self._memory_limit = memory_limit
        capacity = memory_limit // (2 * like.element_size() * len(like))
        self._capacity = int(min(max(capacity, 2), len(like) + 1))
        self._P = like.new_empty(0, len(like))  # (m, D)
        self._AP = like.new_empty(0, len(like))
        self.count = 0  # ever made

    @property
    def room(self) -> int:
        """How many of them may be kept."""
        return self._capacity

    def used(self) -> tuple[Tensor, Tensor]:
        kept = min(self.count, self._capacity)
        return self._P[:kept], self._AP[:kept]

    def remember(self, p: Tensor, Ap: Tensor) -> None:
        place = self.count % self._capacity
        if place >= len(self._P):
            room = min(max(16, 2 * len(self._P)), self._capacity)
            for name in ("_P", "_AP"):
                old = getattr(self, name)
                grown = old.new_empty(room, old.shape[1])
                grown[: len(old)] = old
                setattr(self, name, grown)
        self._P[place], self._AP[place] = p, Ap
        self.count += 1

    def with_damping(self, by: float) -> Directions:
        """The same directions, conjugate at a damping that is ``by`` more; no products."""
        other = Directions(self._P.new_empty(self._P.shape[1]), self._memory_limit)
        P, AP = self.used()
        if len(P) == 0:
            return other
        AP = AP + by * P
        gram = P.double() @ AP.double().T
        factor, failed = torch.linalg.cholesky_ex((gram + gram.T) / 2)
        if int(failed) == 0:
            solve = torch.linalg.solve_triangular
            other._P = solve(factor, P.double(), upper=False).to(P)
            other._AP = solve(factor, AP.double(), upper=False).to(P)
            other.count = len(P)
        return other


class ConjugateInverse:
    """Solves with the stored directions, and adds new ones until the tolerance is met."""

    def __init__(
        self,
        settings: ConjugateGradient,
        curvature: Curvature,
        damping: float,
        directions: Directions | None = None,
        guide: Guide | None = None,
    ) -> None:
        self.damping, self._guide = damping, guide
        self._settings, self._curvature = settings, curvature
        theta = curvature.objective.theta
        self.directions = directions or Directions(theta, settings.memory_limit)

    @property
    def products(self) -> int:
        """How many products with the curvature were made."""
        return self.directions.count

    def with_damping(self, damping: float) -> ConjugateInverse:
        """The inverse at another damping, of the same directions."""
        shifted = self.directions.with_damping(check_damping(damping) - self.damping)
        guide = None if self._guide is None else self._guide.with_damping(damping)
        return ConjugateInverse(self._settings, self._curvature, damping, shifted, guide)

    def near(self, curvature: Curvature, damping: float) -> ConjugateInverse:
        """The inverse of a curvature nearby, guided by these directions and what guided them."""
        older = self._guide if isinstance(self._guide, Recycled) else None
        if self._guide is not None and older is None:
            return self._settings.prepare(curvature, damping)  # a sample guides it
        guide = Recycled.of(*self.directions.used(), older, self.directions.room)
        return ConjugateInverse(self._settings, curvature, check_damping(damping), guide=guide)

    def solve(self, b: Tensor, *, tolerance: float | None = None) -> Solution:
        tolerance = self._settings.tolerance if tolerance is None else tolerance
        P, AP = self.directions.used()
        right = columns(b).to(P).T.contiguous()  # (K, D)
        shares = right @ P.T  # what stored directions already give
        x, residual = shares @ P, right - shares @ AP
        size = right.norm(dim=1).clamp_min(torch.finfo(right.dtype).tiny)
        steps = 0
        while True:
            relative = residual.norm(dim=1) / size
            worst = int(relative.argmax())
            if relative[worst] <= tolerance:
                break
            if steps == self._settings.max_steps:
                if self._settings.on_failure == "return":
                    break
                raise NotConvergedError(self._failure(float(relative[worst]), tolerance))
            p, Ap = self._next_direction(residual[worst])
            shares = residual @ p  # (K,)
            x.addr_(shares, p)
            residual.addr_(shares, Ap, alpha=-1)
            steps += 1
        # the residual is updated at each step, so no product is needed to measure it
        return Solution(x.T.reshape(b.shape), steps, lambda: relative)

    def _next_direction(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        d = self._conjugate(residual if self._guide is None else self._guide.solve(residual).x)
        if self._guide is not None and not d.norm() > NOTHING_NEW:
            d = self._conjugate(residual)
        Ad = self._curvature.product(d) + self.damping * d
        curvature = d @ Ad
        if not curvature > 0:
            raise NegativeCurvatureError(
                not_positive_definite(
                    self._curvature.name,
                    self.damping,
                    float(curvature / (d @ d)) - self.damping,
                )
            )
        root = curvature.sqrt()
        p, Ap = d / root, Ad / root
        self.directions.remember(p, Ap)
        return p, Ap

    def _conjugate(self, v: Tensor) -> Tensor:
        """The part of ``v / |v|`` that is conjugate to all directions."""
        P, AP = self.directions.used()
        d = v / v.norm()
        for _ in range(2):  # twice is enough for conjugacy to working precision
            d = d - (AP @ d) @ P
        return d

    def _failure(self, reached: float, tolerance: float) -> str:
        return (
            f"Conjugate gradients reached a relative residual of {reached:.2e} after "
            f"{self._settings.max_steps} steps, not the {tolerance:.0e} asked for. Likely causes: "
            f"the damping ({self.damping:g}) is small beside the largest eigenvalue, or the "
            "tolerance is below what the model's precision can give. Cures: raise `damping`, "
            "raise `max_steps`, loosen `tolerance`, or give the model in float64."
        )


@dataclass(frozen=True)
class SharedConjugateGradient(ConjugateGradient):
    """Conjugate gradients for several fits of the same model to the same rows.

    The curvature depends on neither constraint nor selection. So give one such solver to all fits:
    each starts from the directions of the fit before it, at its first damping. Another model,
    loss, labels, weights or rows start over. The directions stay in memory as long as the solver.
    A fit with a checkpoint shares nothing, as it must not depend on earlier fits.
    """

    _known: dict[str, tuple[Key, float, Directions]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def prepare(self, curvature: Curvature, damping: float) -> ConjugateInverse:
        inverse, key = super().prepare(curvature, damping), key_of(curvature)
        if self._known:
            known, at, directions = self._known["latest"]
            if is_same(known, key):
                inverse.directions = directions.with_damping(check_damping(damping) - at)
        self._known["latest"] = (key, inverse.damping, inverse.directions)
        return inverse

    @property
    def unshared(self) -> ConjugateGradient:
        return ConjugateGradient(*self._settings)

    @property
    def _settings(self) -> tuple[Any, ...]:
        settings = self.tolerance, self.max_steps, self.memory_limit, self.on_failure
        return (*settings, self.sample_rows)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """A copy has the settings and no directions."""
        return type(self), self._settings


def key_of(curvature: Curvature) -> Key:
    """Identifies a curvature: its kind, its loss, and tensors that change whenever the data do.

    For the Jacobian this is ``J^T u`` with one random ``u``.
    """
    o = curvature.objective
    z = o.model.outputs
    draws = torch.randn(z.shape, generator=torch.Generator().manual_seed(0), device="cpu")
    tensors = (o.theta, z, o.y, o.weights, o.l2, o.model.vjp(draws.to(z)))
    return (curvature.name, o.loss), tensors


def is_same(left: Key, right: Key) -> bool:
    return left[0] == right[0] and all(
        a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
        for a, b in zip(left[1], right[1], strict=True)
    )


Guide = ConjugateInverse | RowSpaceInverse | Recycled  # of a sample, or of solves nearby
Key = tuple[tuple[str, Any], tuple[Tensor, ...]]
