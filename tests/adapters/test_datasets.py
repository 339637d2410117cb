"""A stream as a dataset of torch: sample by sample, and whole whatever the number of workers."""

import numpy as np
import torch
from torch.utils.data import DataLoader

import obrs
from obrs.adapters.datasets import StreamDataset
from obrs.sampling.samples import join

RULE, OPTIONS = obrs.Budgeted(-1.0), {"batch_size": 50, "stop": 1000}


def propose(ids):
    return {"x": obrs.normals(ids, 2, seed=0), "id": ids}


def log_ratio(batch):
    return batch["x"][:, 0]


def test_a_loader_of_any_number_of_workers_gives_what_a_stream_keeps():
    expected = join(list(obrs.stream(propose, log_ratio, RULE, **OPTIONS)))
    dataset = StreamDataset(propose, log_ratio, RULE, **OPTIONS)
    assert [int(item["id"]) for item in dataset] == expected.ids.tolist()
    for options in ({}, {"num_workers": 2, "multiprocessing_context": "spawn"}):  # JAX does not bear a fork
        batches = list(DataLoader(dataset, batch_size=32, **options))
        assert isinstance(batches[0]["x"], torch.Tensor)
        ids = torch.cat([batch["id"] for batch in batches]).numpy()
        x = torch.cat([batch["x"] for batch in batches]).numpy()
        order = np.argsort(ids)
        np.testing.assert_array_equal(ids[order], expected.ids)
        np.testing.assert_array_equal(x[order], expected.x["x"])


def test_processes_share_the_proposals():
    parts = [StreamDataset(propose, log_ratio, RULE, shard=(rank, 2), **OPTIONS) for rank in range(2)]
    ids = [int(item["id"]) for part in parts for item in part]
    assert sorted(ids) == join(list(obrs.stream(propose, log_ratio, RULE, **OPTIONS))).ids.tolist()
