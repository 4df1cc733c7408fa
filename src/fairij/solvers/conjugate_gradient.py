"""Conjugate gradients that share every direction among all right-hand sides.

A direction ``p`` that is conjugate to all earlier ones (``p^T A q = 0``) lowers the error of every
right-hand side without another product. So directions are kept, and the next right-hand side starts
from what they already give. The right-hand sides of Fair-IJ are nested sums of gradients: forty
edits cost about as many products as four unrelated solves.

A solve stops by its energy ``b^T x``, not by ``|b - A x|``, which the column of the largest scale
owns: see `directions.Left`. Where the curvature knows its diagonal, all of this happens in
parameters scaled by it (Jacobi's preconditioner).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fairij.data.checks import number_between, one_of, whole_number
from fairij.data.rows import processes
from fairij.errors import NegativeCurvatureError, NotConvergedError
from fairij.method.curvature import Curvature
from fairij.solvers.base import InverseDefaults, Solution, SolverDefaults, check_damping, columns
from fairij.solvers.directions import Directions, Left
from fairij.solvers.exact import not_positive_definite
from fairij.solvers.guides import RowSpaceInverse, sampled
from fairij.solvers.kronecker import KroneckerInverse, comes_in_factors
from fairij.solvers.recycled import Recycled

AUTO, SAMPLE = "auto", 2048  # rows
SMALLER = 8  # a sample is drawn if there are at least so many times as many rows
GUIDED, GUIDE_STEPS = 0.2, 50  # tolerance and steps of a loose solve on the sample
WIDE = 32  # parameters per sampled row from which the sample is inverted among its rows
DISTRUST = 0.2  # ridge of the sample; without it single rows dominate
NOTHING_NEW = 1e-4  # the part of a direction that earlier ones do not span, at least
USELESS = 0.9  # error of a direction that is raised, if rounding allows no better one
ASTRAY = 0.5  # of a residual: what it may be off before it is only rounding
WINDOW, SHORT_WINDOW = 4, 2  # steps whose gain says how much is left: plain, or guided


@dataclass(frozen=True)
class ConjugateGradient(SolverDefaults):
    """``(H + damping I) x = b`` by products with H alone. Time N D per step.

    Parameters
    ----------
    tolerance : float, default=1e-2
        Stop when the error in energy, ``|x - A^-1 b|_A / |A^-1 b|_A`` with ``|v|_A^2 = v^T A v``,
        is estimated to be at most this for every right-hand side. Columns of any scale count
        alike. The estimate follows how fast the gains of the last steps fall.
    max_steps : int, default=1000
        Products allowed in one call of ``solve``.
    memory_limit : int, default=2**29
        Bytes of stored directions; the oldest are dropped first. A sample takes half as much.
    on_failure : {"raise", "return"}, default="raise"
        What to do after ``max_steps``: raise, or return what was reached. A single right-hand side
        is then corrected by the sample, if there is one; the error told is that before it.
    sample_rows : int or "auto", default="auto"
        Use a sample of about so many rows as a preconditioner; 0 for none. "auto" takes 2048 rows
        for networks whose edited parameters belong to linear layers. Helps other models when CG
        needs many steps (little damping, small tolerance). Not used for small training sets (less
        than 8 times as many rows), on several processes, or for the full Hessian. In float32 use
        it for tolerances down to 1e-4.

    Examples
    --------
    >>> FairIJ(model, solver=ConjugateGradient(tolerance=1e-3)).solver.tolerance
    0.001
    """

    tolerance: float = 1e-2
    max_steps: int = 1000
    memory_limit: int = 2**29
    on_failure: Literal["raise", "return"] = "raise"
    sample_rows: int | Literal["auto"] = "auto"
    name = "cg"

    def __post_init__(self) -> None:
        number_between("tolerance", self.tolerance, 0, 1)
        whole_number("max_steps", self.max_steps, 1)
        if self.sample_rows != AUTO:
            whole_number("sample_rows", self.sample_rows, 0, otherwise=f", or {AUTO!r}")
        one_of("on_failure", self.on_failure, ("raise", "return"))

    def prepare(self, curvature: Curvature, damping: float) -> ConjugateInverse:
        damping = check_damping(damping)
        guide = self._guide(curvature, damping)
        window = WINDOW if guide is None else SHORT_WINDOW
        return ConjugateInverse(self, curvature, damping, guide=guide, window=window)

    def stopped_after(self, steps: int) -> ConjugateGradient:
        rows = 0 if self.sample_rows == AUTO else self.sample_rows  # it pays off after some steps
        return replace(self.unshared, max_steps=steps, on_failure="return", sample_rows=rows)

    def _guide(self, curvature: Curvature, damping: float) -> Guide | None:
        """The inverse of a sample's curvature."""
        rows = SAMPLE if isinstance(self.sample_rows, str) else self.sample_rows
        if not 0 < SMALLER * rows <= len(curvature.objective.y) or processes() > 1:
            return None
        if self.sample_rows == AUTO and not comes_in_factors(curvature):
            return None
        sample = sampled(curvature, rows)
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
        own = KroneckerInverse.of(sample, damping)
        return ConjugateInverse(loose, sample, damping, guide=own, window=SHORT_WINDOW)


class ConjugateInverse(InverseDefaults):
    """Solves with the stored directions, and adds new ones until the tolerance is met."""

    def __init__(
        self,
        settings: ConjugateGradient,
        curvature: Curvature,
        damping: float,
        directions: Directions | None = None,
        guide: Guide | None = None,
        window: int = WINDOW,
    ) -> None:
        self.damping, self._guide, self._window = damping, guide, window
        self._settings, self._curvature = settings, curvature
        self.directions = directions or self._no_directions()

    def _no_directions(self) -> Directions:
        diagonal, theta = self._curvature.diagonal(), self._curvature.objective.theta
        scale = None if diagonal is None else (diagonal + self.damping).rsqrt().to(theta)
        return Directions(theta, self._settings.memory_limit, scale)

    @property
    def products(self) -> int:
        """How many products with the curvature were made."""
        return self.directions.count

    def with_damping(self, damping: float) -> ConjugateInverse:
        """The inverse at another damping, of the same directions."""
        shifted = self.directions.with_damping(self.damping, check_damping(damping))
        guide = None if self._guide is None else self._guide.with_damping(damping)
        given = (self._settings, self._curvature, damping, shifted, guide, self._window)
        return ConjugateInverse(*given)

    def near(self, curvature: Curvature, damping: float) -> ConjugateInverse:
        """The inverse of a curvature nearby, guided by these directions and what guided them."""
        older = self._guide if isinstance(self._guide, Recycled) else None
        if self._guide is not None and older is None:
            return self._settings.prepare(curvature, damping)  # a sample guides it
        found = ConjugateInverse(
            self._settings, curvature, check_damping(damping), window=SHORT_WINDOW
        )
        scale, (P, AP) = self.directions.scale, self.directions.used()
        unlike = found.directions.scale**2
        found._guide = Recycled.of(P * scale, AP / scale, older, self.directions.room, unlike)
        return found

    def solve(self, b: Tensor, *, tolerance: float | None = None) -> Solution:
        tolerance = self._settings.tolerance if tolerance is None else tolerance
        P, AP = self.directions.used()
        right = columns(b).to(P).T * self.directions.scale  # (K, D)
        shares = right @ P.T  # what stored directions already give
        x, residual = shares @ P, right - shares @ AP
        left = Left(self.directions, right, shares, self._window, tolerance)
        steps = 0
        while True:
            error, next_up = left.measured(residual)
            if float(error.max()) <= tolerance:
                break
            if steps == self._settings.max_steps:
                self._may_return(float(error.max()), tolerance)
                if steps and len(right) == 1:
                    x.add_(self._correction(residual[0], shares[0]))
                break
            direction = self._next_direction(left.mixed(residual, next_up))
            if direction is None:
                error = left.rounding(residual)
                break
            p, Ap = direction
            shares = residual @ p  # (K,)
            x.addr_(shares, p)
            residual.addr_(shares, Ap, alpha=-1)
            self._clear(x, residual)
            left.gained(shares)
            steps += 1
            if left.stands_still and self._is_rounding(
                right[next_up], x[next_up], residual[next_up]
            ):
                error = self._told(left, right, x, torch.ones_like(left.is_open))
                if float(error.max()) > USELESS:
                    self._may_return(float(error.max()), tolerance)
                break
        if not bool(left.is_open.all()):  # as far as the residual kept step by step can say
            error = error.clone()
            error[~left.is_open] = self._told(left, right, x, ~left.is_open)
        # the error is estimated at each step, so no product is needed to measure it
        return Solution((x * self.directions.scale).T.reshape(b.shape), steps, lambda: error)

    def _told(self, left: Left, right: Tensor, x: Tensor, which: Tensor) -> Tensor:
        """The errors of some right-hand sides where rounding ends the steps, by their residuals."""
        residual = right[which] - torch.stack([self._product(some) for some in x[which]])
        most = self.directions.most_left(residual, self.damping)
        if self._curvature.name == "hessian":  # it may be indefinite
            most = torch.full_like(most, torch.inf)
        return left.told_by(residual, most, which)

    def _product(self, x: Tensor) -> Tensor:
        """``A x``, in scaled parameters."""
        scale = self.directions.scale
        return scale * (self._curvature.product(scale * x) + self.damping * scale * x)

    def _clear(self, x: Tensor, residual: Tensor) -> None:
        """Take out of the residuals what directions span by now, but for rounding.

        Where columns differ much in scale, what rounding puts there soon exceeds the rest.
        """
        P, AP = self.directions.used()
        shares = residual @ P.T
        x.addmm_(shares, P)
        residual.addmm_(shares, AP, alpha=-1)

    def _may_return(self, reached: float, tolerance: float) -> None:
        if self._settings.on_failure != "return":
            raise NotConvergedError(self._failure(reached, tolerance))

    def _is_rounding(self, right: Tensor, x: Tensor, residual: Tensor) -> bool:
        """Whether a residual, kept up to date step by step, is no longer that of the solution."""
        moved = self._product(x)
        return bool((right - moved - residual).norm() > ASTRAY * residual.norm())

    def _next_direction(self, residual: Tensor) -> tuple[Tensor, Tensor] | None:
        """A new direction of unit energy; None if the residual is spanned by the earlier ones."""
        scale, guide = self.directions.scale, self._guide
        found = residual if guide is None else guide.solve(residual / scale).x / scale
        d = self._conjugate(found)
        if guide is not None and not d.norm() > NOTHING_NEW:
            found = residual
            d = self._conjugate(found)
        if d.norm() <= NOTHING_NEW:
            return None
        Ad = scale * (self._curvature.product(scale * d) + self.damping * scale * d)
        curvature = d @ Ad
        if not curvature > 0:
            raise NegativeCurvatureError(
                not_positive_definite(
                    self._curvature.name,
                    self.damping,
                    float(curvature / (scale * d).square().sum()) - self.damping,
                )
            )
        root = curvature.sqrt()
        p, Ap = d / root, Ad / root
        self.directions.remember(p, Ap)
        self._length = root * found.norm()
        return p, Ap

    def _correction(self, residual: Tensor, share: Tensor) -> Tensor | float:
        """What a sample says is still lacking where no product may follow; 0 without a sample.

        It goes as far along the guide's answer as the best step along the last one went, whose
        share this is, but not farther than the answer itself.
        """
        if not isinstance(self._guide, (ConjugateInverse, RowSpaceInverse)):
            return 0.0
        scale, (P, AP) = self.directions.scale, self.directions.used()
        found = self._guide.solve(residual / scale).x / scale
        return (share / self._length).clamp(0, 1) * (found - (AP @ found) @ P)

    def _conjugate(self, v: Tensor) -> Tensor:
        """The part of ``v / |v|`` that is conjugate to all directions."""
        P, AP = self.directions.used()
        d = v / v.norm()
        for _ in range(2):  # twice is enough for conjugacy to working precision
            d = d - (AP @ d) @ P
        return d

    def _failure(self, reached: float, tolerance: float) -> str:
        return (
            f"Conjugate gradients reached an error in energy of {reached:.2e} after "
            f"{self._settings.max_steps} steps, not the {tolerance:.0e} asked for. Likely causes: "
            f"the damping ({self.damping:g}) is small beside the largest eigenvalue, features "
            "have very different scales, or the tolerance is below what the model's precision can "
            "give. Cures: train on standardised features, raise `damping`, raise `max_steps`, "
            "loosen `tolerance`, or give the model in float64."
        )


@dataclass(frozen=True)
class SharedConjugateGradient(ConjugateGradient):
    """Conjugate gradients for several fits of the same model to the same rows.

    The curvature depends on neither constraint nor selection. So give one such solver to all fits:
    each starts from the directions of the fit before it, at its first damping. Another model,
    loss, labels, weights or rows start over. The directions stay in memory as long as the solver.
    A fit with a checkpoint shares nothing, as it must not depend on earlier fits.

    Examples
    --------
    >>> solver = SharedConjugateGradient()  # the second fit goes on where the first one stopped
    >>> fits = [FairIJ(model, constraints=c, solver=solver, verbose=False).fit(
    ...     X, y, X_val=X_val, y_val=y_val, sensitive_features_val=groups_val)
    ...     for c in ("demographic_parity", "equal_opportunity")]
    >>> len(fits)
    2
    """

    _known: dict[str, tuple[Key, float, Directions]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def prepare(self, curvature: Curvature, damping: float) -> ConjugateInverse:
        inverse, key = super().prepare(curvature, damping), key_of(curvature)
        if self._known:
            known, at, directions = self._known["latest"]
            if is_same(known, key):
                inverse.directions = directions.with_damping(at, check_damping(damping))
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


# of a sample, or of solves nearby
Guide = ConjugateInverse | RowSpaceInverse | KroneckerInverse | Recycled
Key = tuple[tuple[str, Any], tuple[Tensor, ...]]
