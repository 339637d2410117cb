"""Random input at every public door, by number: the right answer or an ObrsError, never a crash, hang or silent NaN.

A room is a list of doors. A door is a function of a `Maker`: it makes arguments by chance, calls a public function and
compares the answer with another way to get it. The number of a case decides everything, so that a fault can be seen
again; only without JAX its few arrays are of NumPy:

    cd tests && python -m adversary --cases 100000
    cd tests && python -m adversary --room rollout --case 1234
"""
