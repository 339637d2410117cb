"""Conditional networks: each says the same of labels that are missing, and of labels that it cannot use."""

import pytest
import torch

from obrs.errors import InputError, InputTypeError
from obrs.models.registry import build

SMALL = {
    "conv_generator": ({"latent": 4, "size": 8, "width": 4}, [(2, 4)]),
    "conv_critic": ({"size": 8, "width": 4}, [(2, 1, 8, 8)]),
    "biggan_generator": ({"latent": 4, "width": 2}, [(2, 4)]),
    "biggan_critic": ({"width": 2}, [(2, 3, 32, 32)]),
    "unet": ({"width": 8}, [(2, 1, 8, 8), (2,)]),
}


@pytest.mark.parametrize("name", SMALL)
def test_labels_are_wanted_by_what_has_classes_and_refused_by_what_has_none(name):
    fields, shapes = SMALL[name]
    given, labels = [torch.zeros(shape) for shape in shapes], torch.tensor([0, 2])
    plain, conditional = build({"name": name, **fields}), build({"name": name, **fields, "classes": 3})
    assert len(plain(*given)) == len(conditional(*given, labels)) == 2
    with pytest.raises(InputTypeError, match="this network has no classes: call it without labels"):
        plain(*given, labels)
    with pytest.raises(InputTypeError, match="this network has 3 classes: pass labels"):
        conditional(*given)
    with pytest.raises(InputError, match="classes must be a whole number of at least 1, got 0"):
        build({"name": name, **fields, "classes": 0})
