"""kronfluence: KFAC and EKFAC, the validation set as one query of many rows."""

from __future__ import annotations

import logging
from tempfile import TemporaryDirectory

import torch
from kronfluence import Analyzer, FactorArguments, ScoreArguments, Task, prepare_model
from kronfluence.utils.dataset import DataLoaderKwargs
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.peers.harness import Method, Rows, gap_weights, main, weighted_gap, whole
from benchmarks.problem import Problem


class GapTask(Task):
    """The training loss, with labels drawn from the model where asked; the measurement is M."""

    def compute_train_loss(self, batch, model: nn.Module, sample: bool = False) -> Tensor:
        X, y = batch
        z = model(X).squeeze(-1)
        if sample:
            with torch.no_grad():
                y = torch.bernoulli(torch.sigmoid(z))
        return binary_cross_entropy_with_logits(z, y, reduction="sum")

    def compute_measurement(self, batch, model: nn.Module) -> Tensor:
        X, weights = batch  # (1, V, 113), (1, V)
        return weighted_gap(model(X).squeeze(-1), weights)


def scores(problem: Problem, strategy: str, batch_size: int) -> Tensor:
    task = GapTask()
    model = prepare_model(problem.model(), task)
    train = Rows(problem.X, problem.y)
    query = Rows(problem.X_validation.unsqueeze(0), gap_weights(problem).unsqueeze(0))
    with TemporaryDirectory() as folder, torch.random.fork_rng():
        torch.manual_seed(0)
        analyzer = Analyzer(
            "gap",
            model,
            task,
            cpu=True,
            disable_tqdm=True,
            log_level=logging.ERROR,
            output_dir=folder,
        )
        analyzer.set_dataloader_kwargs(DataLoaderKwargs(collate_fn=whole))
        analyzer.fit_all_factors(
            "factors",
            train,
            per_device_batch_size=batch_size,
            factor_args=FactorArguments(strategy=strategy),
        )
        analyzer.compute_pairwise_scores(
            "scores",
            "factors",
            query,
            train,
            per_device_query_batch_size=1,
            per_device_train_batch_size=batch_size,
            score_args=ScoreArguments(damping_factor=problem.damping),
        )
        product = analyzer.load_pairwise_scores("scores")["all_modules"]  # (1, N)
    return -product.squeeze(0) / len(problem.X)


APPROXIMATE = "block-diagonal approximation"
METHODS = {
    "KFAC": Method(scores, {"strategy": "kfac", "batch_size": 1024}, APPROXIMATE),
    "EKFAC": Method(scores, {"strategy": "ekfac", "batch_size": 256}, APPROXIMATE),
}

if __name__ == "__main__":
    main("kronfluence", METHODS)
