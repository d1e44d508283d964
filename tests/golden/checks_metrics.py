# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Metrics, the resampling of PF-PPO and the split over ranks, against their definitions (see `checks`)."""

import itertools
from types import SimpleNamespace

import golden_metrics as gm
import numpy as np
import torch

from verl.protocol import DataProto

NAN = float("nan")


def same(got, want, what=""):
    np.testing.assert_allclose(np.asarray(got, dtype=np.float64), want, rtol=1e-6, atol=1e-9, err_msg=what)


def same_dict(got, want):
    assert set(got) == set(want), set(got) ^ set(want)
    for name, value in want.items():
        same(got[name], value, name)


def tensor(array):
    return torch.tensor(np.asarray(array))


def numbers(seed, rows=6, prompt=3, response=5, lengths=None):
    """Ragged prompts and responses with an aborted row, tool tokens, an unscorable row and full-length rows."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, response + 1, rows) if lengths is None else np.asarray(lengths)
    prompts = rng.integers(1, prompt + 1, rows)
    response_mask = (np.arange(response) < lengths[:, None]).astype(np.int64)
    shape = response_mask.shape
    b = {
        "prompt_mask": (np.arange(prompt) >= prompt - prompts[:, None]).astype(np.int64),
        "response_mask": response_mask,
        "policy_mask": response_mask * (rng.random(shape) < 0.8),
        "scores": rng.normal(size=shape) * response_mask,
        "turns": rng.integers(1, 5, rows),
        "old_log_probs": -rng.exponential(size=shape),
        "rollout_log_probs": -rng.exponential(size=shape),
        "sum_pi_squared": rng.random(shape),
        "weights": rng.random(shape) + 0.3,
    }
    b |= {name: rng.normal(size=shape) for name in ("advantages", "returns", "values")}
    b["rewards"] = b["scores"] - 0.1 * response_mask
    return b


def carrier(b, **more):
    """What the metrics read of a batch."""
    tensors = {
        "responses": torch.zeros(b["response_mask"].shape, dtype=torch.long),
        "attention_mask": tensor(np.concatenate([b["prompt_mask"], b["response_mask"]], 1)),
        "response_mask": tensor(b["policy_mask"]),
        "token_level_scores": tensor(b["scores"]),
        "token_level_rewards": tensor(b["rewards"]),
    }
    same_name = ("advantages", "returns", "values", "old_log_probs", "rollout_log_probs", "sum_pi_squared")
    tensors |= {name: tensor(b[name]) for name in same_name} | more
    columns = {"__num_turns__": np.array(b["turns"], dtype=object)}
    return SimpleNamespace(batch=tensors, non_tensor_batch=columns, meta_info={})


def samples():
    yield from (numbers(seed) for seed in range(3))
    yield numbers(3, lengths=[5, 0, 5, 2, 1, 5])
    yield numbers(4, rows=2, lengths=[0, 0])
    yield numbers(5, rows=1, lengths=[1])
    two = numbers(6, rows=2, lengths=[1, 1])
    yield two | {"policy_mask": two["response_mask"]}


def check_data_metrics(m):
    for b, use_critic in itertools.product(samples(), (True, False)):
        same_dict(m.compute_data_metrics(carrier(b), use_critic), gm.data_metrics(b, use_critic))
    b = numbers(0, lengths=[5, 3, 4, 5, 2, 1])
    b["scores"][1, 0] = NAN
    same_dict(m.compute_data_metrics(carrier(b)), gm.data_metrics(b, True))
    # Failed without a score (row 0: no token left), failed with a given score (row 2), not failed (the others).
    b = numbers(0, lengths=[5, 3, 4, 5, 2, 1])
    b["policy_mask"][0], b["policy_mask"][1], b["policy_mask"][2, 0] = 0, 0, 1
    data = carrier(b)
    data.non_tensor_batch["reward_error"] = np.array(["boom", None, "boom", None, None, None], dtype=object)
    totals = b["scores"].sum(1)
    same(m.compute_data_metrics(data)["critic/score/mean"], totals[1:].mean())
    got = m.scores_of(data, "token_level_scores")
    assert got[0] is None
    same(got[1:], totals[1:])
    data = carrier(b)
    data.non_tensor_batch["tool_call_counts"] = np.array([0, 1, 2, 0, 5, 1], dtype=object)
    got = m.compute_data_metrics(data)
    same([got["tool_call_counts/mean"], got["tool_call_counts/max"], got["tool_call_counts/min"]], [1.5, 5, 0])
    # Where every row has a stop reason, that decides; where one lacks it, the width does.
    for column in ("stop_reason", "finish_reason"):
        data = carrier(b)
        data.non_tensor_batch[column] = np.array(["length", "stop", "length", "stop", "stop", "stop"], dtype=object)
        same(m.compute_data_metrics(data)["response_length/clip_ratio"], 2 / 6)
        data.non_tensor_batch[column][0] = None
        same(m.compute_data_metrics(data)["response_length/clip_ratio"], 2 / 6)
        data.non_tensor_batch[column][:] = "length"
        same(m.compute_data_metrics(data)["response_length/clip_ratio"], 1.0)


def check_times(m):
    for b in samples():
        timers = dict(gen=2.0, ref=1.0, values=0.5, adv=0.1, update_critic=3.0, update_actor=4.0, step=11.0)
        same_dict(m.compute_timing_metrics(carrier(b), timers), gm.timing_metrics(b, timers))
        same_dict(m.compute_timing_metrics(carrier(b), {"adv": 1.0}), gm.timing_metrics(b, {"adv": 1.0}))
    batch = SimpleNamespace(meta_info={"global_token_num": [3, 9]})
    for seconds, devices, rate in ((4.0, 2, 1.5), (0.0, 2, 0.0), (4.0, 0, 0.0)):
        got = m.compute_throughout_metrics(batch, {"step": seconds}, devices)
        same_dict(got, {"perf/total_num_tokens": 12, "perf/time_per_step": seconds, "perf/throughput": rate})


def check_variance(m):
    for b, norm, weighted in itertools.product(samples(), (None, 0.0, 0.3, 9.0), (True, False)):
        data = carrier(b, **({"rollout_is_weights": tensor(b["weights"])} if weighted else {}))
        want = gm.variance_proxy(b, b["weights"] if weighted else None, norm)
        same_dict(m.compute_variance_proxy_metrics(data, norm), want)
    data = carrier(b)
    del data.batch["sum_pi_squared"]
    assert m.compute_variance_proxy_metrics(data, 1.0) == {}
    columns = {"a": np.array([1.0, None, 3.0, NAN, 8.0], dtype=object), "b": np.array([None] * 5, dtype=object)}
    got = m.compute_gdpo_metrics(SimpleNamespace(non_tensor_batch=columns), ["a", "b", "c"])
    same([got[f"gdpo/a/{name}"] for name in ("mean", "std", "max", "min")], [4.0, np.std([1, 3, 8]), 8.0, 1.0])
    same([got[f"gdpo/{key}/{name}"] for key in "bc" for name in ("mean", "std", "max", "min")], [0.0] * 8)


def check_mismatch(m):
    for b in samples():
        if b["policy_mask"].sum() < 3:
            continue
        got = m.rollout_mismatch_metrics(carrier(b))
        want = gm.probability_difference(b["rollout_log_probs"], b["old_log_probs"], b["policy_mask"])
        same_dict({name: value for name, value in got.items() if name.startswith("training/")}, want)
        assert got["rollout_corr/k3_kl"] > 0
    bypass, bare = carrier(b), carrier(b)
    bypass.meta_info["rollout_correction"] = {}
    del bare.batch["old_log_probs"]
    for data in (bypass, bare):
        assert m.rollout_mismatch_metrics(data) == {"training/rollout_probs_diff_valid": 0}


def check_log_prob_diff(m):
    for b in samples():
        rollout, trainer, mask = (b[name] for name in ("rollout_log_probs", "old_log_probs", "policy_mask"))
        if mask.sum() < 3:
            continue
        want = gm.probability_difference(rollout, trainer, mask)
        same_dict(m.calculate_debug_metrics(carrier(b)), want)
        difference = m.calculate_log_prob_diff(tensor(rollout), tensor(trainer), tensor(mask))
        same(difference, np.abs(np.exp(rollout) - np.exp(trainer))[mask > 0])
        data = carrier(b)
        del data.batch["response_mask"]
        whole = gm.probability_difference(rollout, trainer, b["response_mask"])
        same_dict(m.calculate_debug_metrics(data), whole)
        del data.batch["rollout_log_probs"]
        assert m.calculate_debug_metrics(data) == {"training/rollout_probs_diff_valid": 0}
    a, b, mask = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[1, 0, 0], [4, 5, 6]]), torch.ones(2, 3)
    same(m.calculate_token_list_diff(a, b, mask), [2 / 3, 0.0])
    same(m.calculate_token_list_diff(a, b, torch.tensor([[1, 1, 0], [0, 0, 0]])), [0.5, 0.0])
    correlate = m.pearson_correlation_coefficient
    x, y = torch.rand(2, 3), torch.rand(2, 3)
    assert correlate(x, y[:1], mask) == 0.0 and correlate(x, y, mask[:1]) == 0.0
    assert correlate(torch.zeros(2, 3), y, mask) == 0.0 and correlate(x, y, torch.zeros(2, 3)) == 0.0


def check_validation(m):
    rng = np.random.default_rng(0)
    counts = {"p": 9, "q": 4, "r": 1, "s": 3}
    uids = [uid for uid, count in counts.items() for _ in range(count)]
    order = rng.permutation(len(uids))
    uids = [uids[i] for i in order]
    sources = ["even" if uid in "ps" else "odd" for uid in uids]
    columns = {
        "reward": rng.integers(0, 3, len(uids)).astype(float).tolist(),
        "acc": rng.random(len(uids)).tolist(),
        "pred": [str(vote) for vote in rng.integers(0, 3, len(uids))],
    }
    columns["acc"][uids.index("p")] = None
    for names in (("reward", "acc", "pred"), ("acc",)):
        chosen = {name: columns[name] for name in names}
        got, want = m.process_validation_metrics(sources, uids, chosen), gm.validation(sources, uids, chosen)
        assert got.keys() == want.keys()
        for source in want:
            assert got[source].keys() == want[source].keys()
            for name in want[source]:
                same_dict(got[source][name], want[source][name])
    strange = {"note": ["x", b"y"], "list": [[1], {"a": 1}], "nan": [NAN, np.inf], "flag": [True, np.float32(0)]}
    got = m.process_validation_metrics(["s"] * 2, ["u"] * 2, strange)
    assert set(got["s"]) == {"flag"} and got["s"]["flag"]["mean@2"] == 0.5
    values = [1.0, 4.0, 2.0, 8.0]
    want = gm.validation_of_prompt([*values, 0.0], None)
    (best, spread), (worst, _) = m.bootstrap_metric([*values, 0.0], 4, [max, min])
    same([best, spread, worst], [want["best@4/mean"], want["best@4/std"], want["worst@4/mean"]])
    assert m.bootstrap_metric(values, 2, [max], n_bootstrap=3, seed=1) != m.bootstrap_metric(values, 2, [max], 3, 2)
    answers = [{"vote": vote, "value": value} for vote, value in zip("abbaa"[:4], (1, 2, 3, 4), strict=True)]
    assert m.calc_maj_val(answers, "vote", "value") == 1 and m.calc_maj_val(answers[1:], "vote", "value") == 2


def check_reweight(m):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=8)
    scores[5] = scores.max()
    for counted in (np.ones(8, bool), np.arange(8) > 3):
        kept = np.where(counted, scores, NAN)
        for method, power in (("pow", 2.0), ("pow", 0.5), ("max_min", 1.0), ("max_random", 1.0)):
            got = m.reweight(tensor(kept), tensor(counted), method, power)
            same(got, gm.reweight(scores, counted, method, power), method)
    nothing = m.reweight(tensor(scores), torch.zeros(8, dtype=torch.bool), "pow", 2.0)
    assert nothing.min() == nothing.max() > 0
    same(m.reweight(torch.zeros(2), torch.ones(2, dtype=torch.bool), "pow", 2.0), [1e-8, 1e-8])
    # Rows 0 and 1 do not count, row 2 and 3 have all the weight between them, 9 to 16 by its square.
    tokens = torch.tensor([[NAN, 0.0], [5.0, 0.0], [1.0, 2.0], [4.0, 0.0]]).repeat(500, 1)
    mask = torch.tensor([[1, 1], [0, 0], [0, 1], [1, 1]]).repeat(500, 1)
    data = DataProto.from_dict(
        {"token_level_scores": tokens, "response_mask": mask},
        {"row": np.arange(2000)},
        {"tokens": list(range(2000)), "other": [1], "name": "x" * 2000},
    )
    drawn = m.compute_pf_ppo_reweight_data(data, "pow", 2.0, torch.Generator().manual_seed(0))
    rows = drawn.non_tensor_batch["row"]
    assert len(rows) == 2000 and set(rows % 4) == {2, 3} and len(set(rows)) < 1000
    np.testing.assert_allclose(np.mean(rows % 4 == 3), 16 / 25, atol=0.03)
    assert drawn.meta_info == {"tokens": rows.tolist(), "other": [1], "name": "x" * 2000}
    assert data.meta_info["tokens"] == list(range(2000))
    unmasked = data.select(batch_keys=["token_level_scores"])
    assert 1 in m.compute_pf_ppo_reweight_data(unmasked, "pow", 2.0).non_tensor_batch["row"] % 4


def check_metric(m):
    metric = m.Metric("mean", [1.0, 3.0])
    metric.append(torch.tensor(9.0), weight=2.0)
    same(metric.aggregate(), 22 / 4)
    for kind, want in (("sum", 8.0), ("count", 8.0), ("min", 1.0), ("max", 4.0), ("mean", 8 / 3)):
        same(m.Metric(kind, [1.0, 3.0, 4.0]).aggregate(), want)
        assert m.Metric(kind).aggregate() == 0.0
    ranks = {"mean": 2.5, "sum": 5.0, "count": 10.0, "min": 1.0, "max": 4.0}
    for kind, want in ranks.items():
        same(m.Metric.aggregate_dp([m.Metric(kind, [1.0, 2.0]), m.Metric(kind, [3.0, 4.0])]), want)
    heavy, light = m.Metric("mean"), m.Metric("mean", 4.0)
    heavy.append(0.0, weight=3.0)
    same(m.Metric.aggregate_dp([heavy, light]), 1.0)
    weightless = m.Metric("mean")
    weightless.append(5.0, weight=0.0)
    assert weightless.aggregate() == 0.0
    plain = {"x/max": [1, 3], "log_ppl_min": [1, 3], "terminated": [0, 1], "softmax": [1, 3], "x": 4, "none": []}
    want = {"x/max": 3, "log_ppl_min": 1, "terminated": 0.5, "softmax": 2, "x": 4, "none": 0.0}
    same_dict(m.reduce_metrics(plain), want)
    same_dict(m.reduce_metrics({"a": np.array([1.0, 5.0]), "b": torch.tensor(2.0)}), {"a": 3.0, "b": 2.0})
    merged = m.merge_metrics([{"a": 1.0, "m/max": [4, 2]}, {"a": [3.0], "m/max": 9, "b": m.Metric("sum", 2.0)}])
    same_dict({name: value.aggregate() for name, value in merged.items()}, {"a": 2.0, "m/max": 9.0, "b": 2.0})
    same_dict(m.reduce_metrics(m.Metric.from_dict({"a": 1, "b": 2}, m.AggregationType.MAX)), {"a": 1.0, "b": 2.0})


P = "verl.trainer.ppo."
METRIC_CHECKS = {
    P + "metric_utils": [check_data_metrics, check_times, check_variance, check_mismatch],
    P + "validation_metrics": [check_validation],
    "verl.algorithms.log_prob_diff": [check_log_prob_diff],
    "verl.algorithms.advantages.reweight": [check_reweight],
    "verl.utils.metric.utils": [check_metric],
}
